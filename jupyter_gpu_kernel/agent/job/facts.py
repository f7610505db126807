"""What Slurm's controller tells of a job: its state, and when it ends. Some sites refuse that on the job's node."""

from __future__ import annotations

import calendar
import re
import time
from typing import Mapping, NamedTuple, Optional

from ...wire.runtime import Runtime
from ..process_control import Limit, ProcessControl, run_programs

TIMEOUT = 5.0
_FIELD = re.compile(r"(?:^|\s)(JobState|Reason|EndTime|PreemptTime)=(\S*)")
_STATE = re.compile(r"[A-Z_]{1,30}")
_WHY = {
    "TIMEOUT": "it has reached its time limit",
    "CANCELLED": "it was cancelled (scancel)",
    "PREEMPTED": "another job takes its resources (preemption)",
    "NODE_FAIL": "a node of it has failed",
    "DEADLINE": "it has reached its deadline",
}
_ENDING = "COMPLETING"
"""The state from the first SIGTERM to the end of the last process. Then the final state is not shown yet."""


class JobFacts(NamedTuple):
    """`end_time`: in seconds since the epoch; None if it is unknown or there is no limit."""

    state: str = ""
    end_time: Optional[int] = None
    preempted: bool = False
    reason: str = ""

    @property
    def why_it_ends(self) -> str:
        """Why Slurm ends the job, as a part of a sentence; "" if it does not, or if that is unknown."""
        if self.state in _WHY:
            return _WHY[self.state]
        if self.preempted:
            return _WHY["PREEMPTED"]
        if self.state != _ENDING:
            return ""
        return _WHY["TIMEOUT" if self.reason == "TimeLimit" else "CANCELLED"]


def read_facts(runtime: Runtime, processes: ProcessControl, job_id: str) -> JobFacts:
    """Ask the controller; nothing is known if it does not answer. Blocks for TIMEOUT seconds at most."""
    # A site may change how Slurm's programs write times; UTC has no hour that comes twice.
    command = ["env", "-u", "SLURM_TIME_FORMAT", "TZ=UTC", "scontrol", "--oneliner", "show", "job", job_id]
    try:
        limit = Limit(runtime.monotonic() + TIMEOUT, most=65536)
        (ended,) = run_programs(runtime, processes, [command], limit, errors=True)
    except OSError:
        return JobFacts()
    return parse_facts(ended.output.decode("utf-8", "replace"))


def parse_facts(line: str) -> JobFacts:
    """Return what a line of `scontrol --oneliner show job` tells, whose times are in UTC."""
    fields: Mapping[str, str] = dict(
        reversed(_FIELD.findall(line))
    )  # of two equal ones the first: others may be names
    state = fields.get("JobState", "")
    state = state if _STATE.fullmatch(state) else ""
    end_time = (
        _moment(fields.get("EndTime", "")) if state in ("RUNNING", "SUSPENDED") else None
    )  # else that is past
    preempted = _moment(fields.get("PreemptTime", "")) is not None
    return JobFacts(state, end_time, preempted, fields.get("Reason", ""))


def _moment(text: str) -> Optional[int]:
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:  # "Unknown", "None"
        return None
