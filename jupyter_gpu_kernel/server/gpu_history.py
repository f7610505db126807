"""The last ten minutes of each GPU's memory and utilization, as far as pages asked for them; in memory, bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

_SECONDS = 600.0
_SPACING = 9.0
"""Seconds between two samples that are kept, at least."""
_MOST_GPUS = 4096
Sample = tuple[int, Any, Any]


class GpuHistory:
    """`add` the hub's rows of GPUs, and read the samples of one with `of`."""

    def __init__(self) -> None:
        self._samples: dict[tuple[Any, ...], deque[Sample]] = {}

    def add(self, now: float, rows: Iterable[dict[str, Any]]) -> None:
        """Take the samples of this moment, in seconds since the epoch, and forget those that are too old."""
        for row in rows:
            if "index" not in row or (_key(row) not in self._samples and len(self._samples) >= _MOST_GPUS):
                continue
            samples = self._samples.setdefault(_key(row), deque())
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


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row.get("hop"), row.get("uuid") or row.get("index")
