"""A link to a node that means harm: floods, nonsense, messages without end; other nodes are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from malformed import frames, some
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

from jupyter_gpu_kernel.errors import AgentError
from jupyter_gpu_kernel.hub.node.attachments import MAX_UNGREETED
from jupyter_gpu_kernel.hub.node.link import Link
from jupyter_gpu_kernel.wire.messages import Lane
from jupyter_gpu_kernel.wire.stream.frames import Frame, Kind, json_frame
from jupyter_gpu_kernel.wire.stream.queues import MAX_MESSAGE


def test_an_answer_that_cannot_be_read_costs_its_request_only() -> None:
    async def test(world: World, link: Link) -> None:
        waiting = asyncio.ensure_future(link.request("sleep", timeout=DEADLINE))
        await link.up()
        deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
        for number in range(1, 9):
            await asyncio.to_thread(
                world.agents[0].send_frame, Frame(Kind.REPLY, number=number, payload=deep)
            )
        with pytest.raises(AgentError, match="cannot be read"):
            await waiting
        assert await link.request("list")
        assert len(world.agents) == 1

    play(test, clocks=PATIENT)


def test_a_message_that_is_none_costs_the_attachment_a_reopening() -> None:
    async def test(world: World, link: Link) -> None:
        attachment = Attachment()
        link.attach(attachment)
        await attachment.until("attached")
        world.keeper.send(Lane.ORDERED, b"no message")
        world.agents[0].send_frame(next(iter(world.keeper.outgoing()))._replace(attachment=world.opened[0]))
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
        neighbour = Link(RUNTIME, "gpu3", other.dial, log, PATIENT)
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
    other.close()


@settings(some, max_examples=15)
@given(st.lists(frames, max_size=30), st.booleans())
def test_whatever_a_node_sends_others_are_served(received: list[Frame], greets: bool) -> None:
    bad, good = World(), World()

    def sends(agent: Agent, frame: Frame) -> None:
        if greets and frame.kind is Kind.HELLO:
            hello(agent, frame)
        for one in received:
            agent.send_frame(one._replace(attachment=one.attachment and frame.attachment))

    bad.instead = sends

    async def test(world: World, link: Link) -> None:
        neighbour = Link(RUNTIME, "gpu3", good.dial, log, PATIENT)
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
        assert len(link._attachments) <= 1 and len(link._attachments._tasks) <= MAX_UNGREETED
        await neighbour.close()

    try:
        play(test, bad, clocks=PATIENT)
    finally:
        good.close()
