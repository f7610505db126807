"""What the cell shows that waits for its kernel's job. Pure."""

from __future__ import annotations

import time

from ..slurm.dialect import JobState
from ..slurm.words import why_pending

_CANCEL = "Interrupt the cell to cancel the job."


def submitting(login: str) -> str:
    """The job is being submitted."""
    return f"{login}: submitting a Slurm job for this kernel"


def not_submitted(login: str, why: str) -> str:
    """The job could not be submitted yet."""
    return f"{login}: no Slurm job was submitted for this kernel yet: {why}\nInterrupt the cell to give up."


def waiting(login: str, job: JobState, now: float) -> str:
    """The job waits, or is about to run."""
    problem = f"Slurm cannot be asked at present: {job.problem}" if job.problem else ""
    is_ = "was" if problem else "is"
    if job.state != "PENDING":
        return "\n".join(filter(None, (f"{login}: job {job.id} {is_} {job.state}", problem, _CANCEL)))
    reason = why_pending(job.reason)
    shown = f" ({job.reason})" if job.reason else ""
    parts = [f"{login}: job {job.id} {is_} PENDING{shown}: {reason.text}"]
    if job.place:
        parts.append(f"place {job.place} in the queue")
    if job.start_estimate is not None and job.start_estimate > now:
        parts.append(f"Slurm estimates its start at {_clock(job.start_estimate, now)}")
    return "\n".join(filter(None, (", ".join(parts), problem, reason.remedy, _CANCEL)))


def starting(login: str, job: JobState, step: str) -> str:
    """The job runs, and the kernel is being started in it."""
    return f"{login}: job {job.id} runs on {job.node}; {step}\n{_CANCEL}"


def _clock(moment: float, now: float) -> str:
    day, today = time.localtime(moment), time.localtime(now)
    near = (day.tm_year, day.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M" if near else "%a %d %b %H:%M", day)
