"""Samples of the node's memory while a kernel runs: when something has killed it, the memory is free again."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Deque, Optional, Tuple

from ..loop import Loop
from .node_checks import PROC, node_mib

MAX_AGE = 20.0
"""Seconds for which a sample counts."""
INTERVALS = (2.0, 10.0)
"""The least and the most seconds between two samples: each one wakes an idle keeper."""
_FASTEST_USE = 2048
"""MiB per second: a thread hardly uses up memory faster, as the system clears it first."""


class MemorySamples:
    """Samples from now on until `stop`, more often where the memory could be used up soon."""

    def __init__(self, loop: Loop, meminfo: Path = PROC / "meminfo") -> None:
        self._loop = loop
        self._meminfo = meminfo
        self._samples: Deque[Tuple[float, float]] = deque(maxlen=int(MAX_AGE / INTERVALS[0]))  # (time, share)
        self._take()

    @property
    def least(self) -> Optional[float]:
        """The smallest share of the memory that was available lately; None if that is unknown."""
        since = self._loop.runtime.monotonic() - MAX_AGE
        return min((share for time, share in self._samples if time >= since), default=None)

    def stop(self) -> None:
        """Take no more samples."""
        self._timer.cancel()

    def _take(self) -> None:
        least, most = INTERVALS
        memory = node_mib(self._meminfo)
        if memory is not None and memory[1]:
            available, total = memory
            self._samples.append((self._loop.runtime.monotonic(), available / total))
            most = min(most, available / _FASTEST_USE)
        self._timer = self._loop.later(max(least, most), self._take)
