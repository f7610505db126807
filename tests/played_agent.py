"""An agent played by the test, and a link to it: what tests of the link and of attachments join.

def test(world, link): …  # asks and tells the link
play(test)"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from runtimes import RUNTIME

from jupyter_gpu_kernel.errors import GpuKernelError
from jupyter_gpu_kernel.hub.node.link import Link, LinkTimeouts
from jupyter_gpu_kernel.hub.transport.stream import Stream
from jupyter_gpu_kernel.wire.messages import MessageError
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint
from jupyter_gpu_kernel.wire.stream.frames import CHUNK, MAGIC, Frame, FrameReader, Kind, json_frame

DEADLINE = 30.0
QUICK = LinkTimeouts(ping_every=0.05, dead_after=0.4, greeting_within=DEADLINE, retry=0.01, retry_most=0.02)
PATIENT = LinkTimeouts(
    ping_every=0.05, dead_after=DEADLINE, greeting_within=DEADLINE, retry=0.01, retry_most=0.02
)
BIG = bytes(3 * CHUNK) * 10
log = logging.getLogger("tests")


class Socket(Stream):
    """One end of a socket pair as a stream."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.closed = threading.Event()

    def read(self, size: int, /) -> bytes:
        return self.sock.recv(min(size, 65536))

    def write(self, data: bytes, /) -> None:
        self.sock.sendall(data)

    def close(self) -> None:
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.closed.set()

    def stderr_tail(self) -> str:
        return ""


class Agent:
    """The other end: greets, answers pings, and `keepers` speak on the attachments that were opened."""

    def __init__(self, world: World) -> None:
        ours, theirs = socket.socketpair()
        self.stream = Socket(theirs)
        self.vanished = threading.Event()
        self._world = world
        self._sock, self._sending = ours, threading.Lock()
        self._reader = FrameReader(greeting=False)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        world = self._world
        try:
            if world.greeting:
                self._sock.sendall(world.greeting)
            while (data := self._sock.recv(65536)) and not self.vanished.is_set():
                for frame in self._reader.feed(data):
                    if world.talks.is_set():
                        self._take(frame)
        except OSError:
            pass

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.PING:
            self.send_frame(Frame(Kind.PONG, number=frame.number))
        elif frame.kind is Kind.REQUEST:
            answer = self._world.answer(frame.json())
            if answer is not None:
                self.send_frame(json_frame(Kind.REPLY, answer, number=frame.number))
        elif frame.kind is Kind.CLOSE:
            self._world.closed.append(frame.attachment)
        else:
            self._to_keeper(frame)

    def _to_keeper(self, frame: Frame) -> None:
        if self._world.instead is not None:
            return self._world.instead(self, frame)
        keeper = self._world.keeper
        if frame.kind is Kind.HELLO:
            keeper.opened(frame.attachment)
        for data in keeper.receive(frame):
            self._world.received.append(data)
        keeper.acknowledge()
        for outgoing in keeper.outgoing():
            self.send_frame(outgoing)

    def send_frame(self, frame: Frame) -> None:
        """One frame to the hub, which may be the last that leaves."""
        if frame.kind is Kind.DATA and frame.number == self._world.last:
            self.vanished.set()
        if not self.vanished.is_set():
            with (
                self._sending
            ):  # the test's thread says something, too, and a full socket takes a part of a frame
                self._sock.sendall(frame.encode())

    def close(self) -> None:
        """Hangs up."""
        self.stream.close()
        self._thread.join(DEADLINE)
        self._sock.close()
        self.stream.sock.close()


class World:
    """What the agents to come do, and those that were dialled."""

    def __init__(self) -> None:
        self.greeting = MAGIC
        self.talks = threading.Event()
        self.talks.set()
        self.last = 0  # the number of the chunk at which an agent vanishes
        self.keeper = Endpoint(RUNTIME, first=False)
        self.received: list[bytes] = []
        self.agents: list[Agent] = []
        self.errors: list[Exception] = []
        self.opened: list[int] = []
        self.closed: list[int] = []  # numbers of the attachments that the hub has closed
        self.instead: Callable[[Agent, Frame], None] | None = None  # of a keeper
        self.opening: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda request: {"ok": True}

    def dial(self, again: bool) -> Socket:
        if self.errors:
            raise self.errors.pop(0)
        self.agents.append(Agent(self))
        return self.agents[-1].stream

    def close(self) -> None:
        """Every agent hangs up."""
        for agent in self.agents:
            agent.close()

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if request["do"] == "open":
            self.opened.append(request["attachment"])
            return self.opening(request)
        return {"kernels": []} if request["do"] == "list" else None


class Attachment:
    """What the link carries here: remembers what it is told."""

    kernel_id = "k1"

    def __init__(self) -> None:
        self.endpoint = Endpoint(RUNTIME, first=True)
        self.got: list[bytes] = []
        self.reported: asyncio.Queue[str] = asyncio.Queue()
        self.error: GpuKernelError | None = None
        self.openings = 0

    def open_request(self) -> dict[str, Any]:
        return {}

    def opened(self, kernel_id: str) -> None:
        self.kernel_id = kernel_id
        self.openings += 1

    def deliver(self, data: bytes) -> None:
        if data == b"fault":
            raise ValueError("a fault of ours")
        if data == b"no message":
            raise MessageError("a message whose lengths do not add up")
        self.got.append(data)
        self.reported.put_nowait("got")

    def attached(self) -> None:
        self.reported.put_nowait("attached")

    def detached(self, reason: str) -> None:
        self.reported.put_nowait("detached")

    def lost(self, error: GpuKernelError) -> None:
        self.error = error
        self.reported.put_nowait("lost")

    async def until(self, word: str) -> None:
        """Until it is told this."""
        while await asyncio.wait_for(self.reported.get(), DEADLINE) != word:
            pass


Scenario = Callable[[World, Link], Coroutine[Any, Any, None]]


def play(test: Scenario, world: World | None = None, clocks: LinkTimeouts = QUICK) -> World:
    """Runs the test with a link to the world; then everything must be closed, and no fault have been met."""
    world = world or World()
    faults: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        link = Link(RUNTIME, "gpu2", world.dial, log, clocks)
        try:
            await asyncio.wait_for(test(world, link), 2 * DEADLINE)
        finally:
            await link.close()

    asyncio.run(main())
    for agent in world.agents:
        assert agent.stream.closed.wait(DEADLINE), "a stream was left open"
        agent.close()
    assert not faults
    for thread in threading.enumerate():
        if thread.name == "link-gpu2":
            thread.join(DEADLINE)
            assert not thread.is_alive(), "a thread was left"
    return world


async def reconnected(world: World, link: Link, count: int) -> None:
    """Until so many were dialled, and the last is up."""
    while len(world.agents) < count or link.state != "up":
        await asyncio.sleep(0.01)


def hello(agent: Agent, frame: Frame, **other: Any) -> None:
    """Answer a HELLO as a keeper does, but for `other`."""
    answer = {"protocol": 1, "session": "s", "peer": frame.json()["session"], "received": 0, **other}
    agent.send_frame(json_frame(Kind.HELLO, answer, attachment=frame.attachment))
