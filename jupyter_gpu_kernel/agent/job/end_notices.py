"""When a kernel's user gets a notice that the job ends: 15, 5 and 1 minutes before. Pure."""

from __future__ import annotations

from typing import Optional, Set

STEPS = (900.0, 300.0, 60.0)
"""Seconds before the end at which a notice is due."""
SLACK = 90.0
"""Seconds by which the end must move for a notice to come once more."""
_WHOLE = 1.1
"""A notice is left out if the whole job takes at most so many times the notice's seconds."""
_INTERVAL = 60.0
"""Seconds after which the clocks are compared again at the latest."""


class EndNotices:
    """The notices of one job. Times are in seconds since the epoch."""

    def __init__(self, start: Optional[float] = None) -> None:
        """`start`: when the job has started; None if its start is unknown."""
        self._start = start
        self._reported: Set[float] = set()

    def due(self, now: float, end: float) -> bool:
        """Return whether a notice is due now, as the job ends at `end`. Each step is due once."""
        remaining = end - now
        self._reported = {step for step in self._reported if remaining <= step + SLACK}  # the end was moved
        if self._start is not None:  # the first time: a job that was short from its start is no news
            self._reported |= {step for step in STEPS if end - self._start <= step * _WHOLE}
            self._start = None
        steps = {step for step in STEPS if remaining <= step} - self._reported
        self._reported |= steps
        return bool(steps) and remaining > 0

    def delay(self, now: float, end: Optional[float]) -> float:
        """Return the seconds until `due` should be asked again."""
        remaining = 0.0 if end is None else end - now
        return min([remaining - step for step in STEPS if remaining > step] + [_INTERVAL])
