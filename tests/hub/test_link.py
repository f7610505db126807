"""A link against an agent played by the test: greeting, silence, reconnects, and what it leaves behind."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from played_agent import (
    BIG,
    DEADLINE,
    PATIENT,
    QUICK,
    Attachment,
    Socket,
    World,
    log,
    play,
    reconnected,
)
from runtimes import RUNTIME

from jupyter_gpu_kernel.errors import AgentError, AuthError, ConnectError
from jupyter_gpu_kernel.hub.node.link import Link, LinkTimeouts
from jupyter_gpu_kernel.wire.messages import Lane
from jupyter_gpu_kernel.wire.stream.frames import MAGIC


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

    play(test, world, clocks=QUICK._replace(greeting_within=0.2))


def test_a_dial_that_fails_first_is_reported_and_not_repeated() -> None:
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


def test_a_link_that_was_up_for_a_while_comes_back_as_soon_as_at_first() -> None:
    before: list[float] = []

    class Delays(LinkTimeouts):
        def next_delay(self, previous: float, refused: bool = False) -> float:
            before.append(previous)
            return super().next_delay(previous, refused)

    async def test(world: World, link: Link) -> None:
        link.attach(Attachment())
        for count in (1, 2, 3):
            await reconnected(world, link, count)
            while link.round_trip is None:  # a ping goes out after more than `retry_most`
                await asyncio.sleep(0.01)
            world.agents[-1].close()
        await reconnected(world, link, 4)
        assert before == [0.0, 0.0, 0.0]

    play(test, clocks=Delays(*PATIENT))


def test_a_link_that_nobody_uses_is_dialled_again_when_somebody_does() -> None:
    other = World()

    async def test(world: World, link: Link) -> None:
        used = Link(RUNTIME, "gpu3", other.dial, log, QUICK)
        used.attach(Attachment())
        await asyncio.gather(link.up(), used.up())
        world.agents[0].close()
        while link.state == "up":
            await asyncio.sleep(0.01)
        for count in (2, 3):  # one that is used comes back meanwhile, and once more
            other.agents[-1].close()
            await reconnected(other, used, count)
        await used.close()
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
    other.close()


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


@pytest.mark.parametrize("message", [b"", b"small", BIG])
def test_a_peer_that_vanishes_while_it_gets_something(message: bytes) -> None:
    """It neither reads nor writes, and no error says so: a write to it may never come back."""

    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        world.agents[0].vanished.set()
        if message:
            attachment.endpoint.send(Lane.ORDERED, message)
            link.pump(attachment.endpoint)
        await attachment.until("detached")
        await attachment.until("attached")
        attachment.endpoint.send(Lane.ORDERED, b"last")
        link.pump(attachment.endpoint)
        while b"last" not in world.received:
            await asyncio.sleep(0.01)
        assert world.received == [data for data in (message, b"last") if data]
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
        begin = link.last_received
        while link.last_received < begin + 1.5 * clocks.dead_after:  # so long would a silent one not last
            assert link.state == "up"
            await asyncio.sleep(0.01)
        assert len(world.agents) == 1

    clocks = QUICK._replace(dead_after=1.0)
    play(test, clocks=clocks)


def test_nonsense_on_the_stream_costs_a_reconnect() -> None:
    async def test(world: World, link: Link) -> None:
        link.attach(Attachment())
        await link.up()
        world.agents[0].stream.sock.shutdown(socket.SHUT_WR)
        await reconnected(world, link, 2)
        world.agents[1]._sock.sendall(b"\xff" * 100)
        await reconnected(world, link, 3)

    play(test, clocks=PATIENT)


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
        link = Link(RUNTIME, "gpu2", slow, log)
        await asyncio.to_thread(dialling.wait, DEADLINE)
        await link.close()
        go.set()
        with pytest.raises(ConnectError, match="closed"):
            await link.up()

    asyncio.run(main())
    assert world.agents[0].stream.closed.wait(DEADLINE)
    world.agents[0].close()


def test_closed_when_it_has_just_dialled() -> None:
    """The thread has ended; the event loop has not processed its result."""
    world = World()
    dialling, go, dialled = threading.Event(), threading.Event(), threading.Event()

    def slow(again: bool) -> Socket:
        dialling.set()
        go.wait(DEADLINE)
        stream = world.dial(again)
        threading.Timer(0.2, dialled.set).start()
        return stream

    async def main() -> None:
        link = Link(RUNTIME, "gpu2", slow, log)
        await asyncio.to_thread(dialling.wait, DEADLINE)
        go.set()
        assert dialled.wait(DEADLINE)
        await link.close()

    asyncio.run(main())
    try:
        assert world.agents[0].stream.closed.wait(DEADLINE)
    finally:
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
