"""When a kernel's user is told that the job ends: 15, 5 and 1 minutes before. Pure."""

from __future__ import annotations

from typing import Optional, Set

STEPS = (900.0, 300.0, 60.0)
"""Seconds before the end."""
SLACK = 90.0
"""Seconds by which the end must move for a notice to come once more."""
_WHOLE = 1.1
"""A step is left out where the whole job takes at most so many times its seconds."""
_INTERVAL = 60.0
"""Seconds after which the clocks are compared again at the latest."""


class EndNotices:
    """Times are in seconds since the epoch."""

    def __init__(self, start: Optional[float] = None) -> None:
        """`start`: when the job has started; None if that is unknown."""
        self._start = start
        self._told: Set[float] = set()

    def due(self, now: float, end: float) -> bool:
        """Return whether the user should be told now, as the job ends at `end`. Each step is due once."""
        left = end - now
        self._told = {step for step in self._told if left <= step + SLACK}  # the end was moved
        if self._start is not None:  # the first time: a job that was short from its start is no news
            self._told |= {step for step in STEPS if end - self._start <= step * _WHOLE}
            self._start = None
        steps = {step for step in STEPS if left <= step} - self._told
        self._told |= steps
        return bool(steps) and left > 0

    def delay(self, now: float, end: Optional[float]) -> float:
        """Return the seconds until `due` should be asked again."""
        left = 0.0 if end is None else end - now
        return min([left - step for step in STEPS if left > step] + [_INTERVAL])
