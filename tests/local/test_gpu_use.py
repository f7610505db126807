"""How often the node of a kernel is asked for the use of its GPUs, however often pages ask."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jupyter_gpu_kernel.errors import HubError
from jupyter_gpu_kernel.server.running.gpu_use import GpuUse
from jupyter_gpu_kernel.wire.runtime import Runtime

KERNEL = {"id": "k1", "link": "up", "gpus": ["GPU-a"]}
ROW = {
    "uuid": "GPU-a",
    "memory_used_mib": 5,
    "utilization": 97,
    "free": False,
    "processes": [{"pid": 1}, {"pid": 2, "yours": True}],
}


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        async def whole() -> None:
            await test(**fixtures)

        asyncio.run(whole())

    return run


class Clock(Runtime):
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Node:
    """Answers as the hub does for a node; `down`: it fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down = False

    async def ask(self, kernel: str) -> list[dict[str, Any]]:
        self.asked.append(kernel)
        await asyncio.sleep(0)
        if self.down:
            raise HubError("the node is down")
        return [ROW, {**ROW, "uuid": "GPU-of-another"}]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def use(clock: Clock, node: Node) -> GpuUse:
    return GpuUse(clock, node.ask)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@in_a_loop
async def test_no_page_waits_and_pages_share_an_answer(use: GpuUse, clock: Clock, node: Node) -> None:
    assert use.of(KERNEL) is None
    assert use.of(KERNEL) is None
    await settled()
    (shown,) = use.of(KERNEL) or ()
    assert (shown["uuid"], shown["memory_used_mib"], shown["utilization"]) == ("GPU-a", 5, 97)
    assert [(one["pid"], one["mine"]) for one in shown["processes"]] == [(1, False), (2, True)]
    assert "free" not in shown
    clock.now += 11
    use.of(KERNEL)
    await settled()
    assert node.asked == ["k1"]
    clock.now += 1
    assert use.of(KERNEL) == [shown], "the answer before, until there is a new one"
    await settled()
    assert node.asked == ["k1", "k1"]


@in_a_loop
async def test_a_kernel_without_gpus_or_link_has_no_node_asked(use: GpuUse, node: Node) -> None:
    for more in ({"gpus": []}, {"link": "away"}, {"link": "connecting"}):
        assert use.of({**KERNEL, **more}) is None
    await settled()
    assert node.asked == []


@in_a_loop
async def test_what_is_not_recent_is_not_shown(use: GpuUse, clock: Clock, node: Node) -> None:
    use.of(KERNEL)
    await settled()
    node.down = True
    for _ in range(3):
        clock.now += 13
        assert use.of(KERNEL), "the node was asked, and has failed"
        await settled()
    clock.now += 13
    assert use.of(KERNEL) is None


@in_a_loop
async def test_gpus_that_the_kernel_has_no_more_are_not_shown(use: GpuUse) -> None:
    use.of(KERNEL)
    await settled()
    assert use.of({**KERNEL, "gpus": ["GPU-b"]}) == []
