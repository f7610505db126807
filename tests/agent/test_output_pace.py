"""How much a kernel may write that its front end has not read, and without front end."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Iterator, List

import pytest
from keepers import Hub
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent.core.events import Tell
from jupyter_gpu_kernel.agent.keeper.core_runner import CoreRunner
from jupyter_gpu_kernel.agent.keeper.server import AHEAD, RATE, HubEvents, KeeperServer, OutputPace
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the agent needs Linux")


class Paced:
    """A server as in a keeper. `returned`: what the kernel was told."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop(RUNTIME)
        self.runner = CoreRunner(self.loop, folder, KernelSettings(), print)
        events = HubEvents(lambda request: {}, self.loop.stop, lambda: None, lambda error: None)
        self.server = KeeperServer(self.loop, folder / "keeper", self.runner, events)
        self.returned: List[int] = []
        self.pace = OutputPace(self.loop, self.server, self.runner, self._return)
        self.path = str(folder / "keeper")
        self.sock = socket.socket(socket.AF_UNIX)

    def _return(self, total: int) -> None:
        self.returned.append(total)
        self.loop.stop()

    def attach(self) -> None:
        """A front end attaches, and does not read."""
        self.sock.connect(self.path)
        Hub(self.sock)
        self.loop.run()

    def close(self) -> None:
        self.server.close()
        self.sock.close()
        self.runner.log_file.close()

    def print(self, size: int) -> None:
        content = {"name": "stdout", "text": "x" * size}
        self.runner.handle(Tell(Lane.ORDERED, Message(Channel.IOPUB, 0, make("stream", content))))


@pytest.fixture
def paced(tmp_path: Path) -> Iterator[Paced]:
    paced = Paced(tmp_path)
    yield paced
    paced.close()


def test_without_front_end_the_kernel_is_not_slowed(paced: Paced) -> None:
    paced.print(2 * AHEAD)
    paced.pace.handled(2 * AHEAD)
    assert paced.returned == [2 * AHEAD]


def test_of_several_short_cells_the_kernel_is_told_once(paced: Paced) -> None:
    for total in (1000, 2000, 3000):
        paced.pace.handled(total)
    assert not paced.returned
    paced.loop.run()
    assert paced.returned == [3000]


def test_a_front_end_that_reads_slowly_slows_the_kernel_down_to_a_rate(paced: Paced) -> None:
    paced.attach()
    paced.print(1000)
    paced.pace.handled(1000)
    paced.loop.run()
    assert paced.returned.pop() == 1000
    paced.print(2 * AHEAD)
    total = 1000 + RATE // 4
    paced.pace.handled(total)
    while total not in paced.returned:
        paced.loop.run()
    assert len(paced.returned) >= 4
    paced.pace.handled(10 * RATE)
    paced.server.detach()
    while paced.returned[-1] < 10 * RATE:
        paced.loop.run()
    assert len(paced.returned) < 30


def test_another_process_begins_anew(paced: Paced) -> None:
    paced.attach()
    paced.pace.handled(AHEAD)
    paced.print(2 * AHEAD)
    paced.pace.handled(1000)
    paced.loop.run()
    assert paced.returned == [AHEAD, 1000]
