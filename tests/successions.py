"""A kernel with a front end whose keepers are killed: `from successions import *`."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fronts import Front
from processes import has_ended
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.agent.story import read_story
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.link import Link

PID = "import os; print(os.getpid())"


class Kernel:
    """A kernel with a front end, and what its keepers do."""

    def __init__(self, loop: LoopThread, link: Link, node: Node, front: Front, remote: RemoteKernel) -> None:
        self.loop, self.link, self.node, self.front, self.remote = loop, link, node, front, remote
        self.pid = int(front.run(PID).text)

    def story(self, event: str = "") -> list[dict[str, Any]]:
        reported = read_story(self.node.handlers.root.story(self.remote.kernel_id))
        return [entry for entry in reported if event in ("", entry["event"])]

    def listed(self) -> bool:
        """Whether `ps` shows it; a folder that nobody needs is gone after that."""
        listed = self.node.handlers.handle({"do": "list"})["kernels"]
        return self.remote.kernel_id in [state["id"] for state in listed]

    @property
    def keeper(self) -> int:
        """The last one's pid."""
        return int([*self.story("start"), *self.story("succession")][-1]["keeper"])

    def kill_keeper(self) -> int:
        """Returns once another one is in its place."""
        killed, before = self.keeper, len(self.story("succession"))
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(self.story("succession")) > before, "another keeper")
        wait_for(lambda: self.remote.link_state == "up", "the link")
        return killed

    def stop(self) -> None:
        """And nothing of it is left."""
        self.loop.call(self.remote.command, "stop")
        self.is_gone()

    def is_gone(self) -> None:
        wait_for(lambda: self.remote.kernel_id not in self.node.handlers.root.kernels(), "the folder's end")
        for pid in (self.pid, self.keeper):
            wait_for(lambda pid=pid: has_ended(pid), f"the end of {pid}")  # type: ignore[misc]


@contextlib.contextmanager
def started(loop: LoopThread, link: Link, node: Node, **settings: Any) -> Iterator[Kernel]:
    remote = loop.kernel(link, **settings)
    with Front(remote.edge.connection) as front:
        until(remote, "idle", "busy")
        kernel = Kernel(loop, link, node, front, remote)
        yield kernel
        if node.handlers.root.kernel(remote.kernel_id).exists():
            kernel.stop()


@pytest.fixture
def kernel(loop: LoopThread, link: Link, node: Node) -> Iterator[Kernel]:
    with started(loop, link, node) as kernel:
        yield kernel


def loops(node: Node, *, last: str = "print('end', n)") -> tuple[str, Path]:
    """A cell that prints numbers until a file is there."""
    stop = node.root / uuid.uuid4().hex
    code = f"n = 0\nwhile not os.path.exists({str(stop)!r}):\n    print(n, flush=True); n += 1; time.sleep(0.01)\n"
    return "import os, time\n" + code + last, stop
