"""What Slurm tells the process of a job: by variables at its start, later by its controller.

The controller is asked rarely while the job runs, and at each signal. Some sites refuse that on the job's node.
"""

from __future__ import annotations

import calendar
import contextlib
import re
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from ...wire.slurm import END_REASONS, expand, job_fields
from ..paths import is_job_id
from ..system.agent_runtime import AgentRuntime, Limit, run_programs
from ..system.loop import Loop

TIMEOUT = 5.0
"""Seconds that the controller has to answer."""
TRIES, PAUSE = 3, 0.5
"""How often the controller is asked again after a signal, and the seconds between."""
LEAST, MOST = 600.0, 6 * 3600.0
"""Seconds between two requests, except at signals: an administrator may extend a job."""
_BEFORE_END = 1200.0
"""Seconds before the known end of the job at which the end is read again, in time for the first notice."""
_STATE = re.compile(r"[A-Z_]{1,30}")
_ENDING = "COMPLETING"
"""The state from the first SIGTERM to the end of the last process. The final state is not shown yet."""


class SlurmJob(NamedTuple):
    """One job of Slurm. `end_time`: in seconds since the epoch; None if the end is unknown."""

    id: str
    partition: str
    node: str
    hosts: List[str]
    end_time: Optional[int]


def read_job(environ: Mapping[str, str]) -> Optional[SlurmJob]:
    """Return the job to which a process with this environment belongs; None if it belongs to no job of Slurm."""
    job_id = environ.get("SLURM_JOB_ID", "")
    if not is_job_id(job_id):
        return None
    hosts: List[str] = []
    with contextlib.suppress(ValueError):
        hosts = expand(environ.get("SLURM_JOB_NODELIST", ""))
    return SlurmJob(
        job_id,
        environ.get("SLURM_JOB_PARTITION", ""),
        environ.get("SLURMD_NODENAME", ""),
        hosts,
        _end_time(environ.get("SLURM_JOB_END_TIME", "")),
    )


def _end_time(text: str) -> Optional[int]:
    """Return SLURM_JOB_END_TIME as a number. In a job without a limit the variable is missing, or far away."""
    return int(text) if text.isdigit() and 0 < int(text) < 1 << 33 else None


# --- the controller


class JobFacts(NamedTuple):
    """What the controller knows of the job. `end_time`: in seconds since the epoch; None if it is unknown, or without
    a limit."""

    state: str = ""
    end_time: Optional[int] = None
    preempted: bool = False
    reason: str = ""

    @property
    def why_it_ends(self) -> str:
        """Why Slurm ends the job, as a part of a sentence; "" if the reason is unknown, or the job does not end."""
        if self.state in END_REASONS:
            return END_REASONS[self.state]
        if self.preempted:
            return END_REASONS["PREEMPTED"]
        if self.state != _ENDING:
            return ""
        return END_REASONS["TIMEOUT" if self.reason == "TimeLimit" else "CANCELLED"]


def read_facts(runtime: AgentRuntime, job_id: str) -> JobFacts:
    """Ask the controller; nothing is known if it does not answer. Blocks for TIMEOUT seconds at most."""
    # A site may change how Slurm's programs write times; UTC has no hour that comes twice.
    command = ["env", "-u", "SLURM_TIME_FORMAT", "TZ=UTC", "scontrol", "--oneliner", "show", "job", job_id]
    try:
        limit = Limit(runtime.monotonic() + TIMEOUT, most=65536)
        (ended,) = run_programs(runtime, [command], limit)
    except OSError:
        return JobFacts()
    return parse_facts(ended.text)


def parse_facts(line: str) -> JobFacts:
    """Return what a line of `scontrol --oneliner show job` tells, whose times are in UTC."""
    fields = job_fields(line)
    state = fields.get("JobState", "")
    state = state if _STATE.fullmatch(state) else ""
    is_active = state in ("RUNNING", "SUSPENDED")  # else the end is past
    end_time = _moment(fields.get("EndTime", "")) if is_active else None
    preempted = _moment(fields.get("PreemptTime", "")) is not None
    return JobFacts(state, end_time, preempted, fields.get("Reason", ""))


def _moment(text: str) -> Optional[int]:
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:  # "Unknown", "None"
        return None


class Controller:
    """Asks the controller about the job. `tell` is called with {"event": "end_time" or "ends", …} at each news."""

    def __init__(self, loop: Loop, job: SlurmJob, tell: Callable[[Dict[str, Any]], None]) -> None:
        self.end_time = job.end_time
        """When the job ends, in seconds since the epoch; None while that is unknown."""
        self._loop = loop
        self._job_id = job.id
        self._tell = tell
        self._asking = False
        self._tries = 0
        self._why = ""
        loop.later(0.0 if job.end_time is None else self._delay(), self._look)

    def signalled(self) -> None:
        """The job has received a signal: ask for the reason at once, and again while it is not known."""
        self._tries = TRIES
        self._ask()

    def _ask(self) -> None:
        """Ask, unless a request is on its way. The answer comes in some seconds at most."""
        if not self._asking:
            self._asking = True
            self._loop.run_in_thread(lambda: read_facts(self._loop.runtime, self._job_id), self._answered)

    def _look(self) -> None:
        self._ask()
        self._loop.later(self._delay(), self._look)

    def _delay(self) -> float:
        remaining = 0.0 if self.end_time is None else self.end_time - self._loop.runtime.time()
        return min(MOST, max(LEAST, remaining - _BEFORE_END))

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
