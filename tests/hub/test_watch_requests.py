"""Requests that are repeated: a slow node delays nobody, and is not asked twice."""

from __future__ import annotations

import asyncio

from runtimes import Clock

from jupyter_gpu_kernel.hub.node.watch import KEPT, WatchedRequests


class Node:
    """A node that answers when the test says what. `asked`: how often it was."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.requests = WatchedRequests[str](self.clock.monotonic, lambda reply: reply.startswith("error"))
        self.asked = 0
        self._answer: asyncio.Future[str] | None = None

    async def reply(self, patience: float = 0.0) -> str:
        return await self.requests.reply("gpu1", patience, self._ask, lambda late: f"late: {late:.0f}")

    async def answers(self, text: str) -> None:
        while self._answer is None:
            await asyncio.sleep(0)
        self._answer.set_result(text)
        self._answer = None
        for _ in range(3):  # the task ends, and then its callbacks are called
            await asyncio.sleep(0)

    async def _ask(self) -> str:
        self.asked += 1
        self._answer = asyncio.get_running_loop().create_future()
        return await self._answer


def test_a_late_reply_is_the_next_one() -> None:
    async def play() -> None:
        node = Node()
        assert await node.reply() == "late: 0"
        node.clock.seconds += 7
        assert await node.reply() == "late: 7"
        assert node.asked == 1
        await node.answers("rows")
        assert await node.reply() == "rows"  # asked again
        await node.answers("other rows")
        assert await node.reply() == "other rows"

    asyncio.run(play())


def test_a_reply_that_nobody_waited_for_is_not_kept() -> None:
    async def play() -> None:
        node = Node()
        await node.reply()
        await node.answers("rows")
        node.clock.seconds += 3600
        assert await node.reply() == "late: 0"

    asyncio.run(play())


def test_while_it_is_waited_for_the_last_reply_stands_for_a_while() -> None:
    async def play() -> None:
        node = Node()
        for printed in ("rows", "error: it is gone"):
            await node.reply()
            await node.answers(printed)
            assert await node.reply() == printed  # asked again
            assert await node.reply() == printed
            node.clock.seconds += KEPT - 1
            assert await node.reply() == printed
            node.clock.seconds += 1
            assert await node.reply() == f"late: {KEPT:.0f}"
            await node.answers("rows")
            assert await node.reply() == "rows"

    asyncio.run(play())


def test_a_reply_in_time_is_waited_for_by_all_and_asked_once() -> None:
    async def play() -> None:
        node = Node()
        both = asyncio.gather(node.reply(60), node.reply(60))
        await node.answers("rows")
        assert await both == ["rows", "rows"] and node.asked == 1

    asyncio.run(play())


def test_a_client_that_leaves_does_not_end_the_request() -> None:
    async def play() -> None:
        node = Node()
        first = asyncio.ensure_future(node.reply(60))
        second = asyncio.ensure_future(node.reply(60))
        await asyncio.sleep(0)
        first.cancel()
        await node.answers("rows")
        assert await second == "rows" and first.cancelled()

    asyncio.run(play())


def test_a_node_that_could_not_be_asked_is_not_waited_for() -> None:
    async def play() -> None:
        node = Node()
        await node.reply()
        await node.answers("error: it is gone")
        assert await asyncio.wait_for(node.reply(3600), 60) == "error: it is gone"
        await node.answers("rows")
        assert await node.reply() == "rows"

    asyncio.run(play())
