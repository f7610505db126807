"""Asks Slurm's controller about the job: rarely while it runs, and at each signal."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ..loop import Loop
from ..process_control import ProcessControl
from .facts import JobFacts, read_facts

TRIES, PAUSE = 3, 0.5
"""How often it is asked again after a signal, and the seconds between."""
LEAST, MOST = 600.0, 6 * 3600.0
"""Seconds between two requests, except at signals: an administrator may extend a job."""
_BEFORE_END = 1200.0
"""Seconds before the end at which it should be read again, in time for the first notice."""


class Controller:
    """`tell` is called with {"event": "end_time" or "ends", …} when something is new."""

    def __init__(
        self,
        loop: Loop,
        processes: ProcessControl,
        job_id: str,
        end_time: Optional[int],
        tell: Callable[[Dict[str, Any]], None],
    ) -> None:
        self.end_time = end_time
        """In seconds since the epoch; None while it is unknown."""
        self._loop = loop
        self._processes = processes
        self._job_id = job_id
        self._tell = tell
        self._asking = False
        self._tries = 0
        self._why = ""
        loop.later(0.0 if end_time is None else self._delay(), self._look)

    def signalled(self) -> None:
        """The job has received a signal: ask why, at once, and again if the controller does not know that yet."""
        self._tries = TRIES
        self._ask()

    def _ask(self) -> None:
        """Ask, unless a request is on its way. The answer comes in some seconds at most."""
        if not self._asking:
            self._asking = True
            runtime = self._loop.runtime
            self._loop.run_in_thread(
                lambda: read_facts(runtime, self._processes, self._job_id), self._answered
            )

    def _look(self) -> None:
        self._ask()
        self._loop.later(self._delay(), self._look)

    def _delay(self) -> float:
        left = 0.0 if self.end_time is None else self.end_time - self._loop.runtime.time()
        return min(MOST, max(LEAST, left - _BEFORE_END))

    def _answered(self, facts: JobFacts) -> None:
        self._asking = False
        if facts.end_time is not None and facts.end_time != self.end_time:
            self.end_time = facts.end_time
            self._tell({"event": "end_time", "end_time": facts.end_time})
        if facts.why_it_ends and facts.why_it_ends != self._why:
            self._why = facts.why_it_ends
            self._tell({"event": "ends", "why": self._why})
        if self._tries and not facts.why_it_ends:
            self._tries -= 1
            self._loop.later(PAUSE, self._ask)
