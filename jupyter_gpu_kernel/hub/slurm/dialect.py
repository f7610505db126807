"""What Slurm's commands print about jobs: squeue, scontrol, sacct and sbatch. Pure.

What a login node prints is read with bounds, and becomes inert: names are validated, other text is one line.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, NamedTuple

from ...wire import slurm
from ...wire.texts import whole_number
from .. import sanitize
from ..transport.connection import Output
from .commands import COLUMNS, JOB_NAME, OTHERS

GONE = "GONE"
"""Our own name for the state of a job that Slurm does not list (any more)."""
ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT", GONE),
)
"""States of a job that has ended. In all other states, to which each version of Slurm may add, the job exists."""
_MOST_LINES = 2000
"""Lines about the user's own jobs that are read; they come first."""
_MOST_NODES = 256
"""Nodes of one of the user's jobs that are shown."""
_MOST_HOSTS = 4096
"""Hosts of any other list that are read."""
_MOST_PLACES = 50
"""Jobs of kernels of which the place is counted."""
_JOB_ID = re.compile(r"[1-9]\d{0,9}")
_STATE = re.compile(r"[A-Z_]{2,30}")
_MOMENT = re.compile(r"\d{9,11}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}")


class JobState(NamedTuple):
    """One job, as squeue shows it. Times are seconds since the epoch."""

    id: str
    state: str
    """Slurm's name for the state (PENDING, RUNNING, TIMEOUT …), or GONE."""
    reason: str = ""
    """Why the job is pending, in Slurm's word: Resources, Priority, QOSMaxGRESPerUser …"""
    place: int = 0
    """The place of the job among the pending jobs of its partition; 0 if unknown."""
    start_estimate: float | None = None
    """When Slurm expects to start the job."""
    node: str = ""
    """The host of the batch script; "" while the job is pending."""
    nodes: tuple[str, ...] = ()
    end_time: float | None = None
    """When the job's time limit ends the job, or when the job ended."""
    partition: str = ""
    name: str = ""
    problem: str = ""
    """Why Slurm cannot be asked at present; the other facts are the last known ones."""

    def to_json(self) -> dict[str, Any]:
        """Return the job for the rows of kernels: without its nodes, of which there may be hundreds in each row."""
        return {key: value for key, value in self.listed().items() if key not in ("nodes", "name")}

    def listed(self) -> dict[str, Any]:
        """Return the job for the list of the user's jobs."""
        row = self._asdict()
        del row["problem"]
        return {**row, "nodes": list(self.nodes)}

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state in ENDED

    @property
    def kernel_id(self) -> str:
        """The id of the kernel that the job was submitted for; "" if it is no job of ours."""
        kernel_id = self.name[len(JOB_NAME) :] if self.name.startswith(JOB_NAME) else ""
        return kernel_id if sanitize.is_id(kernel_id) else ""


class JobRecord(NamedTuple):
    """A job's state with what ended it, from `scontrol show job` or from the accounting."""

    state: str
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    node: str = ""
    """The host of the batch script."""
    time_limit: str = ""
    memory: str = ""
    cancelled_by: str = ""
    """A user's name, or "you (NAME)": only the accounting knows the user."""


def expand(text: str, most: int = _MOST_HOSTS) -> tuple[str, ...]:
    """Return the names in a list of hosts, at most `most`; () if the text is no such list: "", "(null)", "n/a"."""
    try:
        names = tuple(slurm.expand(text, most))
    except ValueError:
        return ()
    return names if all(map(is_host, names)) and names != ("n/a",) else ()


def is_host(name: str) -> bool:
    """Whether this can be the name of a host, as the name becomes an argument of ssh."""
    return _HOST.fullmatch(name) is not None


def is_job_id(text: str) -> bool:
    """Whether this can be the number of a job."""
    return _JOB_ID.fullmatch(text) is not None


def submitted(output: Output) -> str:
    """Return the id that sbatch printed ("12" or "12;cluster"), "" if there is none."""
    for line in reversed(output.lines):
        if is_job_id(job_id := line.strip().partition(";")[0]):
            return job_id
    return ""


def test_verdict(words: str) -> str:
    """Return what `sbatch --test-only` says, without the number of a job that does not exist."""
    match = re.fullmatch(r"Job \d+ (?:to|would) start at (\S+) (using .*)", words)
    return f"it would start at {match[1].replace('T', ' ')}, {match[2]}" if match else words


def queue(output: Output, private: bool = False) -> dict[str, JobState] | None:
    """Return the user's jobs by id; None if squeue failed. `private`: other users' jobs are hidden, so no place is
    known."""
    if output.status:
        return None
    jobs = {job.id: job for line in islice(output.lines, _MOST_LINES) if (job := _job(line)) is not None}
    waiting = [one for line in output.lines if not private and (one := _waiting(line)) is not None]
    ranks = {job_id: (partitions, rank) for partitions, rank, job_id in waiting}
    ours = [one for one in jobs.values() if one.kernel_id and one.id in ranks]
    for job in ours[:_MOST_PLACES]:
        partitions, rank = ranks[job.id]
        before = (one for names, one, _ in waiting if one < rank and not partitions.isdisjoint(names))
        jobs[job.id] = job._replace(place=1 + sum(1 for _ in before))
    return jobs


def _waiting(line: str) -> tuple[set[str], tuple[int, int], str] | None:
    """Return the partitions, the rank and the id of a job that waits, of any user; None if the job is held."""
    values = line[1:].split("|")
    if line[:1] != "-" or len(values) != len(OTHERS):
        return None
    job_id, priority = _job_id(values[0]), number(values[2])
    return (set(values[1].split(",")), (-priority, int(job_id)), job_id) if job_id and priority else None


def _job(line: str) -> JobState | None:
    """Return one of the user's jobs, without its place; None if the line is about none."""
    values = line[1:].split("|", len(COLUMNS) - 1)
    if line[:1] != "+" or len(values) != len(COLUMNS):
        return None
    job_number, state, reason, start, end, partition, host, nodes, name = values
    if not (job_id := _job_id(job_number)) or not _STATE.fullmatch(state):
        return None
    job = JobState(
        job_id,
        state,
        sanitize.line(reason, 100) if reason != "None" else "",
        partition=sanitize.line(partition, 100),
        name=sanitize.line(name.strip(), 100),
    )
    if state == "PENDING":
        return job._replace(start_estimate=_moment(start))
    host = host if is_host(host) and host != "n/a" else ""
    return job._replace(node=host, nodes=expand(nodes, _MOST_NODES), end_time=_moment(end))


def _job_id(text: str) -> str:
    """Return the number of a job, or of an array of jobs: "15_[1-100]"; "" if it is neither."""
    number = text.partition("_")[0]
    return number if is_job_id(number) else ""


def _moment(text: str) -> float | None:
    """Return the time in seconds since the epoch (SLURM_TIME_FORMAT=%s); None for N/A, Unknown and other forms."""
    return float(text) if _MOMENT.fullmatch(text) else None


def number(text: str) -> int:
    """Return the number in this text; 0 if it has none."""
    return whole_number(text) or 0


def record(output: Output, job_id: str, name: str) -> JobRecord | None:
    """Return the job that `ended_command` printed; None if neither the controller nor the accounting has the user's job
    of this id and name: Slurm may have forgotten that job and given its id to another one."""
    uid, _, printed = "\n".join(output.lines).partition("\n")
    # A job's name can contain anything, also newlines and what looks like fields: then there is more than one owner.
    shown, _, accounted = printed.rpartition("\naccounting:")
    ours = rf"JobId={job_id} JobName={re.escape(name)} UserId=\S*\({re.escape(uid)}\) "
    found = _record(shown) if re.match(ours, shown) and shown.count("UserId=") == 1 else None
    if not re.fullmatch("\nJobState=.*", accounted):
        return found
    known = _record(accounted.strip())
    return known if found is None or found.state == known.state else found  # else the accounting lags


def _record(line: str) -> JobRecord:
    """Return the job in a line of `scontrol -o show job`."""
    facts = slurm.job_fields(line)
    state, reason = facts.get("JobState", ""), sanitize.line(facts.get("Reason", ""), 100)
    code, _, signal = facts.get("ExitCode", "").partition(":")
    return JobRecord(
        state if _STATE.fullmatch(state) else "UNKNOWN",
        number(code),
        number(signal),
        "" if reason == "None" else reason,
        next(iter(expand(facts.get("BatchHost", ""))), ""),
        sanitize.line(facts.get("TimeLimit", ""), 30),
        sanitize.line(facts.get("MinMemoryNode", facts.get("MinMemoryCPU", "")), 30),
        sanitize.line(facts.get("CancelledBy", ""), 64),
    )
