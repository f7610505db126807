"""The kernels that one link carries, against an agent played by the test: opened, reopened, refused, released."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest
from played_agent import (
    DEADLINE,
    PATIENT,
    Agent,
    Attachment,
    World,
    hello,
    log,
    play,
)
from runtimes import RUNTIME

from jupyter_gpu_kernel.hub.node import attachments as attachments_module
from jupyter_gpu_kernel.hub.node.attachments import MAX_UNGREETED, Attachments, ReopenBackoff
from jupyter_gpu_kernel.hub.node.link import AGENT_WAITS, Link, LinkTimeouts
from jupyter_gpu_kernel.hub.operations.front_ends import START_TIMEOUT
from jupyter_gpu_kernel.wire.messages import Lane
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint, EndpointState
from jupyter_gpu_kernel.wire.stream.frames import CHUNK, Frame, FrameReader, Kind, json_frame


def test_messages_once_each_over_reconnects() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        for number in range(5):
            await attachment.until("attached")
            attachment.endpoint.send(Lane.ORDERED, b"to %d" % number)
            world.keeper.send(Lane.ORDERED, b"from %d" % number)
            link.pump(attachment.endpoint)
            while len(attachment.got) <= number:
                await attachment.until("got")
            world.agents[-1].close()
            await attachment.until("detached")
        await attachment.until("attached")
        while len(world.received) < 5:
            await asyncio.sleep(0.01)
        assert attachment.got == [b"from %d" % number for number in range(5)]
        assert world.received == [b"to %d" % number for number in range(5)]
        assert len(set(world.opened)) == len(world.opened) == len(world.agents)

    play(test, clocks=PATIENT)


def test_what_was_delivered_is_acknowledged_before_a_release() -> None:
    """Else the next front end would get it once more."""

    class ReleasedAtOnce(Attachment):
        def deliver(self, data: bytes) -> None:
            super().deliver(data)
            links[0].release(self)

    links: list[Link] = []

    async def test(world: World, link: Link) -> None:
        links.append(link)
        world.keeper.send(Lane.ORDERED, b"one")
        attachment = ReleasedAtOnce()
        link.attach(attachment)
        await attachment.until("got")
        assert await link.request("list")
        assert world.keeper.outbox.size == 0

    play(test, clocks=PATIENT)


def test_a_keeper_that_hangs_up_is_opened_once_however_often_that_is_reported() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        for _ in range(20):  # one for each frame that was on its way
            world.agents[0].send_frame(json_frame(Kind.CLOSE, {"reason": "gone"}, attachment=world.opened[0]))
        await attachment.until("attached")
        assert await link.request("list")
        assert len(world.opened) == 2

    play(test, clocks=PATIENT)


def test_the_hub_waits_longer_than_the_agent() -> None:
    """Else it gives up what the agent goes on with."""
    pytest.importorskip("fcntl", reason="the agent needs a POSIX system")
    from jupyter_gpu_kernel.agent.keeper import client
    from jupyter_gpu_kernel.agent.mux import handlers, keepers
    from jupyter_gpu_kernel.agent.pinned_code import checkout

    assert keepers.START_TIMEOUT + checkout.LIMIT + 3 * client.TIMEOUT < AGENT_WAITS["open"] < START_TIMEOUT
    assert AGENT_WAITS["stop"] > keepers.SUCCESSOR_TIMEOUT + 2 * client.TIMEOUT + handlers.STOP_TIMEOUT


def test_an_open_without_an_answer_concerns_that_kernel_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AGENT_WAITS, "open", 0.0)

    async def test(world: World, link: Link) -> None:
        attachment, other = Attachment(), Attachment()
        other.kernel_id = "k2"
        link.attach(attachment)
        await attachment.until("attached")
        answers = iter([None, {"ok": True}])
        world.opening = lambda request: next(answers)
        attachments = Attachments(RUNTIME, "gpu2", impatient(link), lambda previous: 0.0, log)
        attachments.connected(cast(Any, link._stream))
        attachments.add(other)
        while len(world.opened) < 3:
            await asyncio.sleep(0.01)
        assert len(world.agents) == 1 and link.state == "up"
        attachments.disconnected("the test is over")

    play(test, clocks=PATIENT)


def impatient(link: Link) -> Any:
    return lambda do, **more: link.request(do, timeout=0.05, **more)


class Sink:
    """A stream; `sent`: the frames that were written."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self._reader = FrameReader(greeting=False)

    def has_room(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        self.sent += self._reader.feed(data)


def test_incomplete_messages_of_one_node_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments_module, "UNCOUNTED", CHUNK)
    monkeypatch.setattr(attachments_module, "MAX_ASSEMBLING", 6 * CHUNK)

    async def test() -> None:
        async def request(do: str, **more: Any) -> dict[str, Any]:
            return {"kernel": more["kernel"]}

        attachments, stream = Attachments(RUNTIME, "gpu2", request, lambda previous: 60.0, log), Sink()
        attachments.connected(cast(Any, stream))
        two = [Attachment(), Attachment()]
        keepers = [Endpoint(RUNTIME, first=False) for _ in two]
        for attachment, keeper in zip(two, keepers, strict=True):
            attachment.kernel_id = str(id(attachment))
            attachments.add(attachment)
            while attachment.endpoint.state is EndpointState.CLOSED:
                await asyncio.sleep(0)
            number = attachment.endpoint.attachment
            keeper.opened(number)
            keeper.receive(next(one for one in stream.sent if one.attachment == number))
            keeper.send(Lane.ORDERED, bytes(9 * CHUNK))
            frames = keeper.outgoing(5 * CHUNK)  # of which the first one is HELLO
            for frame in frames[:5]:
                attachments.receive(frame)
        assert [one.endpoint.state for one in two] == [EndpointState.OPEN, EndpointState.CLOSED]
        assert sum(one.endpoint.assembling for one in two) <= 7 * CHUNK

    asyncio.run(test())


def test_an_answer_that_the_link_has_outlived_opens_nothing() -> None:
    """The link is down, or up again, when the answer that came before is looked at."""

    async def test() -> None:
        answered = asyncio.Event()

        async def request(do: str, **more: Any) -> dict[str, Any]:
            attachments.disconnected("a drop")
            answered.set()
            return {"kernel": "another"}

        attachments = Attachments(RUNTIME, "gpu2", request, lambda previous: 0.0, log)
        attachments.connected(cast(Any, Sink()))
        attachment = Attachment()
        attachments.add(attachment)
        await answered.wait()
        await asyncio.gather(*attachments._tasks)
        assert attachment.kernel_id == "k1" and attachment.endpoint.state is EndpointState.CLOSED

    asyncio.run(test())


def test_nonsense_on_an_attachment_costs_that_attachment_a_reopening() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        for _ in range(20):
            world.agents[0].send_frame(Frame(Kind.ACK, world.opened[0], number=99))
        await attachment.until("attached")
        assert await link.request("list")
        assert len(world.agents) == 1
        assert len(world.opened) == 2

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
def test_a_start_that_is_refused_is_reported_at_once_unless_it_is_only_too_early(
    code: str, wanted: str
) -> None:
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


def test_nothing_is_asked_of_a_stream_that_was_lost_at_once() -> None:
    """A request would wait for the next stream, and make the link reconnect without a delay."""
    asked: list[str] = []

    async def request(do: str, **more: Any) -> dict[str, Any]:
        asked.append(do)
        return {}

    async def main() -> None:
        attachments = Attachments(RUNTIME, "gpu2", request, PATIENT.next_delay, log)
        attachments.add(Attachment())
        attachments.connected(cast(Any, object()))
        attachments.disconnected("it ended")
        await asyncio.gather(*attachments._tasks)

    asyncio.run(main())
    assert asked == []


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
        while len(world.closed) < 2:  # one for the release, and one for what was opened after it
            await asyncio.sleep(0.01)
        assert world.closed == 2 * world.opened
        assert attachment.endpoint.state is EndpointState.CLOSED and attachment.openings == 0
        assert attachment.reported.empty()
        assert not link.in_use

    play(test, world, clocks=PATIENT)


def test_a_keeper_that_accepts_no_connection_is_asked_ever_more_seldom_and_then_reported() -> None:
    world = World()

    def hangs_up(agent: Agent, frame: Frame) -> None:
        agent.send_frame(json_frame(Kind.CLOSE, {"reason": "no"}, attachment=frame.attachment))

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
    backoff = ReopenBackoff(RUNTIME, LinkTimeouts().next_delay)
    delays = [backoff.delay() for _ in range(MAX_UNGREETED)]
    assert delays[0] == 0 and delays[1] > 0.1 and min(delays[-3:]) > 3 and backoff.exhausted
    assert len({round(delay, 6) for delay in delays[-3:]}) > 1, "with jitter"
    backoff.opened()
    assert not backoff.exhausted
    assert backoff.delay() > 3, "one that greets and hangs up is no better"


@pytest.mark.parametrize("other", [{"protocol": 2}, {"protocol": 2**62}])
def test_a_keeper_of_another_protocol_is_reported_at_once(other: dict[str, Any]) -> None:
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
