"""Requests that a client repeats every few seconds (`--watch`): a slow node does not delay the others.

A request that a node has not answered yet is not sent again: the next call waits for the same answer, and so do the
calls of other clients. Meanwhile the node's last reply stands for the reply that is due. This module does not know what
is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

KEPT = 15.0
"""Seconds for which the last reply of a node stands for its next reply."""
T = TypeVar("T")


class WatchedRequests(Generic[T]):
    """`await reply(key, …)`. The key stands for a request to a node."""

    def __init__(self, now: Callable[[], float], failed: Callable[[T], bool]) -> None:
        """now: Return the event loop's time. failed: Whether a reply says that the node could not be asked."""
        self._now = now
        self._failed = failed
        self._open: dict[Hashable, tuple[asyncio.Task[T], float]] = {}  # and since when
        self._last: dict[Hashable, tuple[T, float]] = {}

    async def reply(
        self,
        key: Hashable,
        patience: float | None,
        ask: Callable[[], Coroutine[Any, Any, T]],
        late: Callable[[float], T],
    ) -> T:
        """Return the reply of `ask()`, which raises nothing. If it takes too long, return the last reply, or that of
        `late(seconds since the request)`.

        patience: The seconds to wait for the reply. A node that could not be asked the last time is not waited for.
            None: the request is not repeated, and its own reply is waited for.
        """
        if patience is None:
            return await ask()
        task, since = self._open.get(key) or self._begin(key, ask())
        last, at = self._last.get(key, (None, 0.0))
        if self._now() - at >= KEPT:
            last = None
        wait = 0.0 if last is not None and self._failed(last) else patience
        await asyncio.wait([task], timeout=max(0.0, since + wait - self._now()))
        if task.done():
            return task.result()
        return last if last is not None else late(self._now() - since)

    def _begin(self, key: Hashable, asking: Coroutine[Any, Any, T]) -> tuple[asyncio.Task[T], float]:
        task = asyncio.get_running_loop().create_task(asking)
        task.add_done_callback(lambda task: self._finished(key, task))
        self._open[key] = task, self._now()
        return self._open[key]

    def _finished(self, key: Hashable, task: asyncio.Task[T]) -> None:
        del self._open[key]
        if not task.cancelled():  # else the hub ends
            self._last[key] = task.result(), self._now()
