"""A kernel that another computer took over is taken back by its user's next cell; so are cells sent meanwhile."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from fronts import Front
from runtimes import RUNTIME
from streams import LoopThread, Node, log, until, wait_for

from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.kernel.kernel_state import HubContext, Origin
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.link import LinkTimeouts

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]
CONNECTION = {"ip": "127.0.0.1", "transport": "tcp", "key": "key", "signature_scheme": "hmac-sha256"}


class Computers:
    """Two computers with a link to one node each, and a kernel that the first has started."""

    def __init__(self, node: Node, loop: LoopThread) -> None:
        self.loop = loop
        self._node = node
        self.kernel_id = uuid.uuid4().hex[:12]
        settings = {"gpus": 0, "id": self.kernel_id, "name": "test", "python": sys.executable}
        self.first = self.come("first", "create", **settings)
        until(self.first, "idle")

    def come(self, owner: str, how: str, **settings: Any) -> RemoteKernel:
        link = self.loop.link(self._node, LinkTimeouts(retry=0.02))
        context = HubContext(RUNTIME, log, owner={"owner": owner, "by": owner})
        given, front_end = KernelSettings.from_json(settings), FrontEndSpec(dict(CONNECTION))
        remote = self.loop.call(RemoteKernel, context, self.kernel_id, given, front_end, link, Origin(how))
        self.loop.closing(remote.close)
        return remote


@pytest.fixture
def computers(node: Node, loop: LoopThread) -> Iterator[Computers]:
    yield Computers(node, loop)


def test_all_cells_that_are_sent_while_a_kernel_is_taken_back_run(computers: Computers) -> None:
    """Also those behind the one that takes it back, and on every channel."""
    first = computers.first
    with Front(first.edge.connection) as front:
        front.run("seen = []")
        second = computers.come("second", "attach", name="test", python="")
        wait_for(lambda: first.life.taken_cause, "the first computer knows")
        codes = [f"seen.append({number}); print(seen)" for number in range(4)]
        asked = [front.client.execute(code) for code in codes]
        cells = [front.finish(request) for request in asked]
        assert [cell.reply["status"] for cell in cells] == ["ok"] * 4
        assert [cell.text.splitlines()[-1] for cell in cells] == [str(list(range(n + 1))) for n in range(4)]
        wait_for(lambda: second.life.taken_cause, "the second computer knows")


def test_what_was_asked_before_a_switch_is_asked_of_the_other_kernel(computers: Computers) -> None:
    """Of a kernel that a front end leaves: what has no answer, and what had not yet been sent."""
    other = uuid.uuid4().hex[:12]
    first, loop = computers.first, computers.loop
    beside = loop.kernel(first.link, other)
    until(beside, "idle")
    loop.call(beside.close)
    with Front(first.edge.connection) as front:
        asleep = front.client.execute(
            "import time\nprint('asleep', flush=True)\nwhile 'stop' not in globals(): time.sleep(.05)"
        )
        front.until_text(asleep, "asleep\n")
        behind = front.client.execute("stop = 1; print('behind')")
        wait_for(lambda: len(first.core.relay.table.in_flight) == 2, "both were asked")
        loop.call(first.switch, other)
        front.client.execute("0", store_history=False)
        assert front.until_text(asleep, "asleep\n")
        assert front.control("interrupt_request")["status"] == "ok"
        assert front.reply(asleep)["status"] == "error"
        assert front.reply(behind)["status"] in ("ok", "aborted")
