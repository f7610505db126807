"""The use of GPUs: of one kernel's GPUs, for the pages that show the kernel, and the last ten minutes of every GPU, as
far as pages asked for them.

A kernel's node is asked seldom, and no page waits for the answer. All of it is in memory, and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...errors import GpuKernelError
from ...wire.runtime import Runtime

Row = dict[str, Any]
Ask = Callable[[str], Awaitable[list[Row]]]
_INTERVAL = 12.0
"""Seconds between two requests about a kernel, however many pages show it. The node runs nvidia-smi for each."""
_RECENT = 45.0
"""Seconds for which an answer says something about now."""
_SECONDS = 600.0
"""The age of the oldest sample that is kept."""
_SPACING = 9.0
"""Seconds between two samples that are kept, at least."""
_MOST_GPUS = 256
"""The most GPUs of one node of which samples are kept, so that a node that always reports other GPUs displaces no GPU
of other nodes."""
Sample = tuple[int, Any, Any]
_SHOWN = ("index", "uuid", "name", "memory_used_mib", "memory_total_mib", "utilization")


def processes(row: Row) -> list[Row]:
    """Return the processes on the GPU of this row of `gpus`, each with `mine`: whether it is of this user."""
    return [{**one, "mine": one.get("yours") is True} for one in row.get("processes") or ()]


@dataclass
class _Known:
    """What is known of one kernel. Times are of the monotonic clock."""

    asked_at: float = -math.inf
    answered_at: float = -math.inf
    asking: asyncio.Task[None] | None = None
    rows: list[Row] = field(default_factory=list)


class GpuUse:
    """Asks about a kernel when a page wants to know, and at no other time."""

    def __init__(self, runtime: Runtime, ask: Ask) -> None:
        """`ask`: has the node of the kernel with this id asked; it may raise GpuKernelError."""
        self._runtime = runtime
        self._ask_node = ask
        self._known: dict[str, _Known] = {}

    def of(self, kernel: Row) -> list[Row] | None:
        """Return the rows of its GPUs, as they were asked last; None if that is not known, or too long ago.

        `kernel`: the hub's row. Meanwhile its node is asked again, if that is due, it has GPUs, and its link is up.
        """
        now = self._runtime.monotonic()
        self._known = {key: one for key, one in self._known.items() if now - one.asked_at <= _RECENT}
        if kernel["link"] != "up" or not kernel["gpus"]:
            return None
        known = self._known.setdefault(kernel["id"], _Known())
        if now - known.asked_at >= _INTERVAL and (known.asking is None or known.asking.done()):
            known.asked_at = now
            known.asking = asyncio.create_task(self._ask(kernel["id"], known))
        if now - known.answered_at > _RECENT:
            return None
        return [row for row in known.rows if row["uuid"] in kernel["gpus"]]

    async def _ask(self, kernel_id: str, known: _Known) -> None:
        with contextlib.suppress(GpuKernelError):  # what is known stays for a while
            rows = await self._ask_node(kernel_id)
            known.rows = [
                {key: row.get(key) for key in _SHOWN} | {"processes": processes(row)} for row in rows
            ]
            known.answered_at = self._runtime.monotonic()


class GpuHistory:
    """The last ten minutes of the memory and utilization of each GPU. `add` takes the hub's rows of GPUs, and `of`
    returns the samples of one GPU."""

    def __init__(self) -> None:
        self._samples: dict[tuple[Any, Any], deque[Sample]] = {}

    def add(self, now: float, rows: Iterable[dict[str, Any]]) -> None:
        """Take the samples of this moment, in seconds since the epoch, and forget those that are too old."""
        counts = Counter(hop for hop, _ in self._samples)
        for row in rows:
            hop, _ = key = _key(row)
            if "index" not in row or (key not in self._samples and counts[hop] >= _MOST_GPUS):
                continue
            counts[hop] += key not in self._samples
            samples = self._samples.setdefault(key, deque())
            if not samples or not 0 <= now - samples[-1][0] < _SPACING:
                samples.append((int(now), row.get("memory_used_mib"), row.get("utilization")))
        for key, samples in list(self._samples.items()):
            while samples and not 0 <= now - samples[0][0] < _SECONDS:  # the clock may have been set back
                samples.popleft()
            if not samples:
                del self._samples[key]

    def of(self, row: dict[str, Any]) -> list[list[Any]]:
        """Return [[time, memory_used_mib, utilization], …] of the GPU in this row, oldest first."""
        return [list(sample) for sample in self._samples.get(_key(row), ())]


def _key(row: dict[str, Any]) -> tuple[Any, Any]:
    return row.get("hop"), row.get("uuid") or row.get("index")
