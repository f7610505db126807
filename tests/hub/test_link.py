"""A link against an agent played by the test: greeting, silence, refusals, reconnects, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtimes import RUNTIME

from jupyter_gpu_kernel.errors import AgentError, AuthError, ConnectError, GpuKernelError
from jupyter_gpu_kernel.hub.node import stream as stream_module
from jupyter_gpu_kernel.hub.node.attachments import MAX_UNGREETED, ReopenBackoff
from jupyter_gpu_kernel.hub.node.link import Link, LinkTimeouts
from jupyter_gpu_kernel.hub.node.stream import MAX_PENDING_READS, StreamThreads
from jupyter_gpu_kernel.wire.endpoint import Endpoint
from jupyter_gpu_kernel.wire.frames import CHUNK, MAGIC, Frame, FrameReader, Kind, json_frame
from jupyter_gpu_kernel.wire.messages import Lane, MessageError
from jupyter_gpu_kernel.wire.queues import MAX_MESSAGE, Inbox, NumberingError

DEADLINE = 30.0
QUICK = LinkTimeouts(ping_every=0.05, dead_after=0.4, greeting_within=0.5, retry=0.01, retry_most=0.02)
PATIENT = LinkTimeouts(
    ping_every=0.05, dead_after=DEADLINE, greeting_within=DEADLINE, retry=0.01, retry_most=0.02
)
log = logging.getLogger("tests")


class Socket:
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


class Agent:
    """The other end: greets, answers pings, and `keepers` speak on the attachments that were opened."""

    def __init__(self, world: World) -> None:
        ours, theirs = socket.socketpair()
        self.stream = Socket(theirs)
        self.vanished = threading.Event()
        self._world = world
        self._sock = ours
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
            self.say(Frame(Kind.PONG, number=frame.number))
        elif frame.kind is Kind.REQUEST:
            answer = self._world.answer(frame.json())
            if answer is not None:
                self.say(json_frame(Kind.REPLY, answer, number=frame.number))
        elif frame.kind is not Kind.CLOSE:
            self._to_keeper(frame)

    def _to_keeper(self, frame: Frame) -> None:
        if self._world.instead is not None:
            return self._world.instead(self, frame)
        keeper = self._world.keeper
        if frame.kind is Kind.HELLO:
            keeper.opened(frame.attachment)
        for data in keeper.receive(frame):
            self._world.heard.append(data)
        for outgoing in keeper.outgoing():
            self.say(outgoing)

    def say(self, frame: Frame) -> None:
        """One frame to the hub, which may be the last that leaves."""
        if frame.kind is Kind.DATA and frame.number == self._world.last:
            self.vanished.set()
        if not self.vanished.is_set():
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
        self.heard: list[bytes] = []
        self.agents: list[Agent] = []
        self.errors: list[Exception] = []
        self.opened: list[int] = []
        self.instead: Callable[[Agent, Frame], None] | None = None  # of a keeper
        self.opening: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda request: {"ok": True}

    def dial(self, again: bool) -> Socket:
        if self.errors:
            raise self.errors.pop(0)
        self.agents.append(Agent(self))
        return self.agents[-1].stream

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
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.error: GpuKernelError | None = None

    def open_request(self) -> dict[str, Any]:
        return {}

    def opened(self, kernel_id: str) -> None:
        self.kernel_id = kernel_id

    def deliver(self, data: bytes) -> None:
        if data == b"fault":
            raise ValueError("a fault of ours")
        if data == b"no message":
            raise MessageError("a message whose lengths do not add up")
        self.got.append(data)
        self.told.put_nowait("got")

    def attached(self) -> None:
        self.told.put_nowait("attached")

    def detached(self, reason: str) -> None:
        self.told.put_nowait("detached")

    def lost(self, error: GpuKernelError) -> None:
        self.error = error
        self.told.put_nowait("lost")

    async def until(self, word: str) -> None:
        """Until it is told this."""
        while await asyncio.wait_for(self.told.get(), DEADLINE) != word:
            pass


Scenario = Callable[[World, Link], Coroutine[Any, Any, None]]


def play(test: Scenario, world: World | None = None, clocks: LinkTimeouts = QUICK) -> World:
    """Runs the test with a link to the world; then everything must be closed, and no fault have been met."""
    world = world or World()
    faults: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        link = Link("gpu2", world.dial, log, clocks)
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


def test_requests() -> None:
    async def test(world: World, link: Link) -> None:
        assert await link.request("list") == {"kernels": []}
        with pytest.raises(AgentError, match="did not answer “sleep” within 0 s") as error:
            await link.request("sleep", timeout=0.1)
        assert error.value.hop == "gpu2"

    play(test)


def test_noise_before_the_greeting() -> None:
    world = World()
    world.greeting = b"Welcome!\n" + MAGIC

    async def test(world: World, link: Link) -> None:
        assert await link.request("list") == {"kernels": []}

    play(test, world)


@pytest.mark.parametrize("greeting", [b"", b"bash: python: command not found\n"])
def test_no_greeting_is_an_error_that_says_what_came(greeting: bytes) -> None:
    world = World()
    world.greeting = greeting

    async def test(world: World, link: Link) -> None:
        with pytest.raises(AgentError, match="did not send its greeting") as error:
            await link.up()
        assert greeting.decode().strip() in error.value.cause
        assert link.state == "failed"

    play(test, world)


def test_a_dial_that_fails_first_is_told_and_not_repeated() -> None:
    world = World()
    world.errors = [AuthError("no", hop="gpu2")]

    async def test(world: World, link: Link) -> None:
        for _ in range(2):
            with pytest.raises(AuthError):
                await link.up()

    assert play(test, world).agents == []


def test_a_dial_that_fails_first_is_repeated_where_a_killed_hub_had_a_link() -> None:
    world = World()
    world.errors = [ConnectError("down", hop="gpu2"), ConnectError("still down", hop="gpu2")]

    async def test(world: World, link: Link) -> None:
        link.keep_trying()
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")

    play(test, world)


def test_a_dial_that_fails_later_is_repeated() -> None:
    async def test(world: World, link: Link) -> None:
        link.attach(Attachment())
        await link.up()
        world.errors = [ConnectError("down", hop="gpu2"), OSError("also down"), ValueError("a fault of ours")]
        world.agents[0].close()
        await reconnected(world, link, 2)
        assert not world.errors

    play(test)


def test_a_server_that_refuses_us_is_asked_ever_more_seldom() -> None:
    """Less than five times in ten minutes, whatever the jitter; the network's being down is another thing."""
    pauses, pause = [], 0.0
    for _ in range(6):
        pause = LinkTimeouts().next_delay(pause, refused=True)
        pauses.append(pause)
    assert pauses == [60, 120, 240, 480, 600, 600]
    assert 0.7 * sum(pauses[:4]) > 600
    assert LinkTimeouts().next_delay(pause, refused=False) == LinkTimeouts().retry_most
    assert (
        LinkTimeouts().next_delay(LinkTimeouts().next_delay(0, refused=False), refused=False)
        == 2 * LinkTimeouts().retry
    )


def test_a_link_that_nobody_uses_is_dialled_again_when_somebody_does() -> None:
    async def test(world: World, link: Link) -> None:
        await link.up()
        world.agents[0].close()
        while link.state == "up":
            await asyncio.sleep(0.01)
        await asyncio.sleep(10 * QUICK.retry_most)  # so late would a used one not be
        assert len(world.agents) == 1
        assert await link.request("list")
        world.agents[1].close()
        while link.state == "up":
            await asyncio.sleep(0.01)
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        assert len(world.agents) == 3

    play(test)


def test_a_silent_peer_is_noticed_and_replaced() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        world.talks.clear()
        await attachment.until("detached")
        world.talks.set()
        await attachment.until("attached")
        assert len(world.agents) >= 2

    play(test)


BIG = bytes(3 * CHUNK) * 10


@pytest.mark.parametrize("message", [b"", b"small", BIG])
def test_a_peer_that_vanishes_while_it_is_told_something(message: bytes) -> None:
    """It neither reads nor writes, and no error says so: a write to it may never come back."""

    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        world.agents[0].vanished.set()
        if message:
            attachment.endpoint.send(Lane.ORDERED, message)
            link.pump()
        await attachment.until("detached")
        await attachment.until("attached")
        attachment.endpoint.send(Lane.ORDERED, b"last")
        link.pump()
        while b"last" not in world.heard:
            await asyncio.sleep(0.01)
        assert world.heard == [data for data in (message, b"last") if data]
        assert len(world.agents) >= 2

    play(test)


def test_a_peer_that_vanishes_while_it_says_something() -> None:
    """In the middle of a large message, of which the next one sends only what did not come."""
    world = World()
    world.last = 17
    world.keeper.send(Lane.ORDERED, BIG)

    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("detached")
        assert attachment.endpoint.received == world.last - 1
        assert not attachment.got
        world.last = 0
        await attachment.until("got")
        assert attachment.got == [BIG]
        assert len(world.agents) >= 2

    play(test, world)


def test_pings_keep_a_link_up_that_has_nothing_to_say() -> None:
    async def test(world: World, link: Link) -> None:
        await link.up()
        await asyncio.sleep(3 * QUICK.dead_after)  # so long would a dead one not last
        assert link.state == "up"
        assert len(world.agents) == 1

    play(test)


def test_messages_once_each_over_reconnects() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        for number in range(5):
            await attachment.until("attached")
            attachment.endpoint.send(Lane.ORDERED, b"to %d" % number)
            world.keeper.send(Lane.ORDERED, b"from %d" % number)
            link.pump()
            while len(attachment.got) <= number:
                await attachment.until("got")
            world.agents[-1].close()
            await attachment.until("detached")
        await attachment.until("attached")
        while len(world.heard) < 5:
            await asyncio.sleep(0.01)
        assert attachment.got == [b"from %d" % number for number in range(5)]
        assert world.heard == [b"to %d" % number for number in range(5)]
        assert len(set(world.opened)) == len(world.opened) == len(world.agents)

    play(test, clocks=PATIENT)


def test_a_keeper_that_hangs_up_is_opened_once_however_often_it_is_said() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        for _ in range(20):  # one for each frame that was on its way
            world.agents[0].say(json_frame(Kind.CLOSE, {"reason": "gone"}, attachment=world.opened[0]))
        await attachment.until("attached")
        assert await link.request("list")
        assert len(world.opened) == 2

    play(test, clocks=PATIENT)


def test_nonsense_on_an_attachment_costs_that_attachment_a_reopening() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        for _ in range(20):
            world.agents[0].say(Frame(Kind.ACK, world.opened[0], number=99))
        await attachment.until("attached")
        assert await link.request("list")
        assert len(world.agents) == 1
        assert len(world.opened) == 2

    play(test, clocks=PATIENT)


def test_nonsense_on_the_stream_costs_a_reconnect() -> None:
    async def test(world: World, link: Link) -> None:
        link.attach(Attachment())
        await link.up()
        world.agents[0].stream.sock.shutdown(socket.SHUT_WR)
        await reconnected(world, link, 2)
        world.agents[1]._sock.sendall(b"\xff" * 100)
        await reconnected(world, link, 3)

    play(test, clocks=PATIENT)


def test_a_fault_while_delivering_costs_that_message_only() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        for data in (b"one", b"fault", b"two"):
            world.keeper.send(Lane.ORDERED, data)
        link.attach(attachment)
        while len(attachment.got) < 2:
            await attachment.until("got")
        assert attachment.got == [b"one", b"two"]
        assert len(world.agents) == 1

    play(test, clocks=PATIENT)


def test_a_refusal_loses_the_attachment_and_no_other() -> None:
    world = World()
    world.opening = lambda request: {"error": {"code": "gone", "text": "it ended at noon"}}

    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("lost")
        assert attachment.error is not None
        assert attachment.error.cause == "the node says: it ended at noon"
        assert "logs" in attachment.error.remedy
        assert not link.in_use
        assert await link.request("list")

    play(test, world)


@pytest.mark.parametrize("code", ["busy", "unresponsive", "fault"])
def test_a_kernel_that_cannot_be_come_back_to_for_a_moment_is_not_lost(code: str) -> None:
    """As where many come back at once, or the node has no memory or disk to spare."""
    world = World()
    refusals = [{"error": {"code": code, "text": "not now"}}] * (MAX_UNGREETED - 2)
    world.opening = lambda request: refusals.pop() if refusals else {"ok": True}

    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        assert attachment.error is None and len(world.opened) == MAX_UNGREETED - 1

    play(test, world, clocks=PATIENT)


@pytest.mark.parametrize("code", ["busy", "unresponsive", "setup"])
@pytest.mark.parametrize("wanted", ["create", "attach"])
def test_a_start_that_is_refused_is_told_at_once_unless_it_is_only_too_early(code: str, wanted: str) -> None:
    world = World()
    refusals = [{"error": {"code": code, "text": "not now"}}]
    world.opening = lambda request: refusals.pop() if refusals else {"ok": True}

    class Wanted(Attachment):
        def open_request(self) -> dict[str, Any]:
            return {wanted: {}}

    async def test(world: World, link: Link) -> None:
        attachment = Wanted()
        link.attach(attachment)
        await attachment.until("attached" if code == "busy" else "lost")

    play(test, world, clocks=PATIENT)


def test_release_before_it_is_open() -> None:
    """The agent's answer comes too late: nothing is opened here, and the agent is told to let go."""
    world = World()
    go = threading.Event()

    def opening(request: dict[str, Any]) -> dict[str, Any]:
        go.wait(DEADLINE)
        return {"ok": True}

    world.opening = opening

    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        while not world.opened:
            await asyncio.sleep(0.01)
        link.release(attachment)
        go.set()
        assert await link.request("list")
        assert attachment.told.empty()
        assert not link.in_use

    play(test, world, clocks=PATIENT)


def test_closed_while_it_dials() -> None:
    """What is dialled too late is closed."""
    world = World()
    dialling, go = threading.Event(), threading.Event()
    dial = world.dial

    def slow(again: bool) -> Socket:
        dialling.set()
        go.wait(DEADLINE)
        return dial(again)

    async def main() -> None:
        link = Link("gpu2", slow, log)
        await asyncio.to_thread(dialling.wait, DEADLINE)
        await link.close()
        go.set()
        with pytest.raises(ConnectError, match="closed"):
            await link.up()

    asyncio.run(main())
    assert world.agents[0].stream.closed.wait(DEADLINE)
    world.agents[0].close()


def test_requests_end_with_the_link() -> None:
    """Not with a timer."""

    async def test(world: World, link: Link) -> None:
        await link.up()
        waiting = asyncio.ensure_future(link.request("sleep", timeout=DEADLINE))
        await asyncio.sleep(0)
        world.agents[0].close()
        with pytest.raises(ConnectError, match="went down"):
            await waiting

    play(test, clocks=PATIENT)


# ---------------------------------------------------------------------------------------------- peers that mean harm


def hello(agent: Agent, frame: Frame, **other: Any) -> None:
    """A keeper's answer to HELLO."""
    answer = {"protocol": 1, "session": "s", "peer": frame.json()["session"], "received": 0, **other}
    agent.say(json_frame(Kind.HELLO, answer, attachment=frame.attachment))


def test_a_keeper_that_accepts_no_connection_is_asked_ever_more_seldom_and_then_told() -> None:
    world = World()

    def hangs_up(agent: Agent, frame: Frame) -> None:
        agent.say(json_frame(Kind.CLOSE, {"reason": "no"}, attachment=frame.attachment))

    world.instead = hangs_up

    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("lost")
        assert attachment.error is not None
        assert "accepts no connection" in attachment.error.cause and "stop k1" in attachment.error.remedy
        assert await link.request("list"), "the link stays"
        assert len(world.opened) == MAX_UNGREETED and not link.in_use

    play(test, world, clocks=PATIENT)


def test_the_pauses_before_a_keeper_is_asked_again() -> None:
    backoff = ReopenBackoff(LinkTimeouts().next_delay)
    delays = [backoff.delay() for _ in range(MAX_UNGREETED)]
    assert delays[0] == 0 and delays[1] > 0.1 and min(delays[-3:]) > 3 and backoff.exhausted
    assert len({round(delay, 6) for delay in delays[-3:]}) > 1, "with jitter"
    backoff.opened()
    assert not backoff.exhausted
    assert backoff.delay() > 3, "one that greets and hangs up is no better"


@pytest.mark.parametrize("other", [{"protocol": 2}, {"protocol": 2**62}])
def test_a_keeper_of_another_protocol_is_told_at_once(other: dict[str, Any]) -> None:
    world = World()
    world.instead = lambda agent, frame: hello(agent, frame, **other)

    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("lost")
        assert attachment.error is not None
        assert "another version" in attachment.error.cause and "\x1b" not in attachment.error.cause
        assert "stop k1" in attachment.error.remedy
        assert len(world.opened) == 1

    play(test, world)


def test_an_answer_that_cannot_be_read_costs_its_request_only() -> None:
    async def test(world: World, link: Link) -> None:
        waiting = asyncio.ensure_future(link.request("sleep", timeout=DEADLINE))
        await link.up()
        deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
        for number in range(1, 9):
            await asyncio.to_thread(world.agents[0].say, Frame(Kind.REPLY, number=number, payload=deep))
        with pytest.raises(AgentError, match="cannot be read"):
            await waiting
        assert await link.request("list")
        assert len(world.agents) == 1

    play(test, clocks=PATIENT)


def test_a_message_without_end_ends_the_attachment() -> None:
    inbox = Inbox()
    chunk = bytes(CHUNK)
    for number in range(1, MAX_MESSAGE // CHUNK + 1):
        assert inbox.accept(number, int(Lane.ORDERED), chunk) is None
    with pytest.raises(NumberingError, match="a message of more than"):
        inbox.accept(number + 1, int(Lane.URGENT), b"x")
    with pytest.raises(NumberingError, match="has 65537 bytes"):
        Inbox().accept(1, 0x82, bytes(CHUNK + 1))
    with pytest.raises(NumberingError, match="has 0 bytes"):
        Inbox().accept(1, 2, b"")


def test_a_message_that_is_none_costs_the_attachment_a_reopening() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        world.keeper.send(Lane.ORDERED, b"no message")
        world.agents[0].say(next(iter(world.keeper.outgoing()))._replace(attachment=world.opened[0]))
        await attachment.until("attached")
        assert len(world.opened) == 2

    play(test, clocks=PATIENT)


FLOODS = {
    "pongs": Frame(Kind.PONG).encode(),
    "frames of unknown kernels": Frame(Kind.DATA, 4_000_000, 1, 0x82, b"x").encode(),
    "answers": json_frame(Kind.REPLY, {}, number=4_000_000).encode(),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_node_that_floods_the_link_loses_it_and_holds_up_no_other(flood: bytes) -> None:
    other = World()

    async def test(world: World, link: Link) -> None:
        neighbour = Link("gpu3", other.dial, log, PATIENT)
        await asyncio.gather(link.up(), neighbour.up())
        turns = 0

        def pour() -> None:
            with contextlib.suppress(OSError):
                while True:
                    world.agents[0]._sock.sendall(flood * 10_000)

        poured = asyncio.ensure_future(asyncio.to_thread(pour))
        while link.state == "up":
            assert await neighbour.request("list")
            turns += 1
        assert turns > 2, "the loop stood still"
        await poured
        await neighbour.close()

    play(test, clocks=PATIENT._replace(ping_every=DEADLINE))
    for agent in other.agents:
        agent.close()


def test_the_loop_works_at_what_comes_bit_by_bit() -> None:
    """What comes at once is handed out in turns, and only so much is read ahead."""
    frames = 200_000
    ours, theirs = socket.socketpair()

    async def main() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        got = turns = 0

        def on_frame(frame: Frame) -> None:
            nonlocal got
            got += 1

        wire = StreamThreads(Socket(theirs), loop, on_frame, lambda: None, "gpu2")
        data = MAGIC + Frame(Kind.PONG).encode() * frames
        sent = asyncio.ensure_future(asyncio.to_thread(ours.sendall, data))
        while got < frames:
            await asyncio.sleep(0)
            turns += 1
        await sent
        wire.close()
        return got, turns

    got, turns = asyncio.run(main())
    assert got == frames and turns > 5
    ours.close()
    theirs.close()


def test_others_have_their_turn_while_one_read_is_worked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """All frames come in a single read, and a turn is over after each of them."""
    monkeypatch.setattr(stream_module, "MAX_TURN", -1.0)
    frames = 50
    ours, theirs = socket.socketpair()

    class OneRead(Socket):
        first = True

        def read(self, size: int, /) -> bytes:
            if not self.first:
                return super().read(size)
            self.first = False
            return MAGIC + Frame(Kind.PONG).encode() * frames

    async def main() -> list[int]:
        turns = 0
        at: list[int] = []
        wire = StreamThreads(
            OneRead(theirs), asyncio.get_running_loop(), lambda frame: at.append(turns), lambda: None, "gpu2"
        )
        while len(at) < frames:
            await asyncio.sleep(0)
            turns += 1
        wire.close()
        return at

    at = asyncio.run(main())
    assert len(set(at)) == frames, "frames were worked through without a turn for others between them"
    ours.close()
    theirs.close()


def test_so_much_is_read_ahead_and_no_more() -> None:
    """While the loop is busy elsewhere: what it has not worked through waits in the stream, and so at the node."""

    class Endless(Socket):
        reads = 0

        def read(self, size: int, /) -> bytes:
            if self.closed.is_set():
                return b""
            self.reads += 1
            return MAGIC if self.reads == 1 else Frame(Kind.PONG).encode()

    ours, theirs = socket.socketpair()
    stream = Endless(theirs)

    async def main() -> int:
        wire = StreamThreads(stream, asyncio.get_running_loop(), lambda frame: None, lambda: None, "gpu2")
        done = threading.Event()
        done.wait(0.3)  # the loop stands still
        reads = stream.reads
        wire.close()
        return reads

    assert asyncio.run(main()) <= MAX_PENDING_READS
    ours.close()
    theirs.close()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
JSON = st.dictionaries(
    st.sampled_from(["protocol", "session", "peer", "received", "serials", "features", "error", "kernel"]),
    VALUES,
)
NUMBERS = st.integers(0, 9) | st.integers(0, 2**64 - 1)
PLAIN = st.builds(
    Frame,
    st.sampled_from(list(Kind)),
    st.just(0) | st.integers(1, 9),
    NUMBERS,
    st.integers(0, 255),
    st.binary(max_size=99),
)
WITH_JSON = st.builds(
    json_frame, st.sampled_from([Kind.HELLO, Kind.REPLY, Kind.CLOSE]), JSON, st.integers(0, 9), NUMBERS
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(PLAIN | WITH_JSON, max_size=30), st.booleans())
def test_whatever_a_node_says_others_are_served(frames: list[Frame], greets: bool) -> None:
    bad, good = World(), World()

    def says(agent: Agent, frame: Frame) -> None:
        if greets and frame.kind is Kind.HELLO:
            hello(agent, frame)
        for one in frames:
            agent.say(one._replace(attachment=one.attachment and frame.attachment))

    bad.instead = says

    async def test(world: World, link: Link) -> None:
        neighbour = Link("gpu3", good.dial, log, PATIENT)
        victim, other = Attachment(), Attachment()
        link.attach(victim)
        neighbour.attach(other)
        await other.until("attached")
        while not bad.opened:
            await asyncio.sleep(0.001)
        for _ in range(5):
            assert await neighbour.request("list") == {"kernels": []}
        answer: Any = None
        with contextlib.suppress(Exception):  # which may be any that a user can meet
            answer = await link.request("list", timeout=0.2)
        assert answer is None or isinstance(answer, dict)
        assert sum(map(len, victim.endpoint._inbox._parts.values())) <= MAX_MESSAGE
        assert len(link._attachments) <= 1 and len(link._attachments._tasks) <= 3
        await neighbour.close()

    try:
        play(test, bad, clocks=PATIENT)
    finally:
        for agent in good.agents:
            agent.close()
