"""The last ten minutes of each GPU's memory and utilization, as far as pages asked for them; in memory, bounded."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

_SECONDS = 600.0
_SPACING = 9.0
"""Seconds between two samples that are kept, at least."""
_MOST_GPUS = 256
"""The most GPUs that are kept of one node, so that a node that always reports other GPUs displaces no GPU of others."""
Sample = tuple[int, Any, Any]


class GpuHistory:
    """`add` the hub's rows of GPUs, and read the samples of one with `of`."""

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
