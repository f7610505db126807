"""What must hold for hundreds of kernels in one hub: limits of the system, and work for one that does not grow with the
others."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from played_agent import PATIENT, Agent, Attachment, World, play
from runtimes import RUNTIME

from jupyter_gpu_kernel.hub.node.attachments import MAX_OPENING
from jupyter_gpu_kernel.hub.node.link import Link
from jupyter_gpu_kernel.wire.messages import Lane
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint
from jupyter_gpu_kernel.wire.stream.frames import Frame, Kind, reply_frame

COUNT = 100
MANY_EDGES = f"""
import asyncio, resource
from jupyter_gpu_kernel.hub.front_end.edge import Edge
from jupyter_gpu_kernel.hub.app import raise_limit
from jupyter_gpu_kernel.wire.runtime import Runtime

async def main():
    edges = [Edge(Runtime(), {{"key": "key"}}, print, print) for _ in range({COUNT})]
    print(len({{edge.connection["shell_port"] for edge in edges}}))

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
raise_limit()
asyncio.run(main())
"""


class Counting(Endpoint):
    """Counts how often it is asked what it has to send."""

    asked = 0

    def outgoing(self, limit: int = 1 << 20) -> list[Frame]:
        self.asked += 1
        return super().outgoing(limit)


class Numbered(Attachment):
    """One of many kernels."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.kernel_id = f"k{number}"
        self.endpoint = self.counting = Counting(RUNTIME, first=True)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_a_hundred_kernels_where_shells_allow_256_open_files() -> None:
    """As macOS's do; and ZeroMQ itself would have sockets for 68."""
    done = subprocess.run([sys.executable, "-c", MANY_EDGES], capture_output=True, text=True, check=True)
    assert int(done.stdout) == COUNT


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_a_higher_limit_of_open_files_is_not_lowered() -> None:
    program = (
        "import resource\nfrom jupyter_gpu_kernel.hub.app import raise_limit\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "most = 70_000 if hard == resource.RLIM_INFINITY else min(hard, 70_000)\n"
        "for before in (64, 5_000, most):\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))\n"
        "    raise_limit()\n"
        "    after, still = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "    assert before < after or before == most == after, (before, after)\n"
        "    assert still == hard\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_only_the_kernel_that_has_something_to_send_is_asked_for_it() -> None:
    async def test(world: World, link: Link) -> None:
        keepers: dict[int, Endpoint] = {}
        received: list[bytes] = []

        def keeper(agent: Agent, frame: Frame) -> None:
            one = keepers.setdefault(frame.attachment, Endpoint(RUNTIME, first=False))
            if frame.kind is Kind.HELLO:
                one.opened(frame.attachment)
            received.extend(one.receive(frame))
            for outgoing in one.outgoing():
                agent.send_frame(outgoing)

        world.instead = keeper
        kernels = [Numbered(number) for number in range(COUNT)]
        for kernel in kernels:
            link.attach(kernel)
        for kernel in kernels:
            await kernel.until("attached")
        before = [kernel.counting.asked for kernel in kernels]
        for number in range(10):
            kernels[0].endpoint.send(Lane.ORDERED, b"%d" % number)
            link.pump(kernels[0].endpoint)
            while len(received) <= number:
                await asyncio.sleep(0)
        assert received == [b"%d" % number for number in range(10)]
        assert [kernel.counting.asked for kernel in kernels[1:]] == before[1:]

    play(test, clocks=PATIENT)


def test_no_more_kernels_are_opened_at_once_than_the_agent_takes() -> None:
    async def test(world: World, link: Link) -> None:
        world.opening = lambda request: None
        kernels = [Numbered(number) for number in range(COUNT)]
        for kernel in kernels:
            link.attach(kernel)
        while len(world.opened) < MAX_OPENING:
            await asyncio.sleep(0)
        assert await link.request("list")  # answered after everything that was asked before
        assert len(world.opened) == MAX_OPENING
        link.release(kernels[-1])
        world.opening = lambda request: {"ok": True}
        for number in range(1, MAX_OPENING + 1):
            world.agents[0].send_frame(reply_frame({"ok": True}, number))  # the link's first requests
        for kernel in kernels[:-1]:
            await kernel.until("attached")
        assert len(world.opened) == COUNT - 1, "a kernel that was released meanwhile is not opened"

    play(test, clocks=PATIENT)
