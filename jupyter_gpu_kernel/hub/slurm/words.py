"""What Slurm says in sentences for users: why a job waits, was refused, or has ended; and what to change. Pure."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from ...errors import AgentError, ConnectError, GpuKernelError, SettingsError
from ...wire.texts import signal_name
from .. import sanitize
from ..node.install.deploy import EXIT_STATUSES
from ..transport.script import Output
from .dialect import ENDED, GONE, JobRecord, JobState

_ADD = "jupyter gpu-kernel add … --slurm --replace"
_NEW_JOB = "Run a cell to start a new job."
_CANCEL = "Interrupt the cell to cancel the job."


# --- jobs that wait


class PendingReason(NamedTuple):
    """Why a job is pending. `remedy`: what to change, if it would wait for ever; else ""."""

    text: str
    remedy: str = ""


_FOR_EVER: tuple[tuple[str, str], ...] = (  # the first that matches counts
    (r"JobHeld|JobHoldMaxRequeue|.*held", ""),
    (r"PartitionTimeLimit$", "--time, or --partition"),
    (r"PartitionNodeLimit$", "--nodes, or --partition"),
    (r"PartitionConfig$", "--cpus, --mem, --gpus, or --partition"),
    (r"PartitionInactive$", "--partition"),
    (r"BadConstraints$", "--gpus, --gpu-type, --mem, or --partition"),
    (r"(Account|QOS)NotAllowed$", "--account, --qos, or --partition"),
    (r"Invalid(Account|QOS)$", "--account, or --qos"),
    (r"\w*Max\w*(Time|Wall|PerJob|PerNode)", "--time, --gpus or --qos"),
)
"""Slurm's reasons for which a job waits for ever, and the options of `add` to change; "" if none helps."""
_TEXTS: tuple[tuple[str, str], ...] = (  # the first that matches counts
    (r"(None)?$", "Slurm has not looked at it yet"),
    (r"Resources$", "it is next, as soon as enough is free"),
    (r"Priority$", "other jobs have a higher priority"),
    (r"ReqNodeNotAvail|.*(DOWN|DRAINED)", "the nodes that it could use are down, drained or reserved"),
    (r"QOS|Assoc|Max", "a limit of the QOS or the account is reached: it starts when other jobs have ended"),
)
"""The frequent ones of Slurm's other reasons, in words."""


def why_pending(reason: str) -> PendingReason:
    """Return what Slurm's reason means; the reason itself is shown, too."""
    options = next((options for pattern, options in _FOR_EVER if re.match(pattern, reason)), None)
    if options is None:
        return PendingReason(next((text for pattern, text in _TEXTS if re.match(pattern, reason)), ""))
    if not options:
        return PendingReason(
            "it is held", "Release it with scontrol release, or ask the cluster's administrators."
        )
    return PendingReason("such a job can never start", f"Interrupt it, and change {options}: {_ADD}")


def not_submitted_text(login: str, error: GpuKernelError) -> str:
    """Return what the waiting cell shows while its job cannot be submitted."""
    return f"{login}: no Slurm job was submitted for this kernel yet: {error.cause}\nInterrupt the cell to give up."


def waiting_text(login: str, job: JobState, now: float) -> str:
    """Return what the waiting cell shows of a job that waits, or is about to run."""
    problem = f"Slurm cannot be asked at present: {job.problem}" if job.problem else ""
    is_ = "was" if problem else "is"
    if job.state != "PENDING":
        return "\n".join(filter(None, (f"{login}: job {job.id} {is_} {job.state}", problem, _CANCEL)))
    reason = why_pending(job.reason)
    shown = f" ({job.reason})" if job.reason else ""
    parts = [f"{login}: job {job.id} {is_} PENDING{shown}{reason.text and ': '}{reason.text}"]
    if job.place:
        parts.append(f"place {job.place} in the queue")
    if job.start_estimate is not None and job.start_estimate > now:
        parts.append(f"Slurm estimates its start at {_clock(job.start_estimate, now)}")
    return "\n".join(filter(None, (", ".join(parts), problem, reason.remedy, _CANCEL)))


def starting_text(login: str, job: JobState, step: str) -> str:
    """Return what the waiting cell shows while its kernel is started in the job. `step`: what is being done."""
    return f"{login}: job {job.id} runs on {job.node}; {step}\n{_CANCEL}"


def _clock(moment: float, now: float) -> str:
    day, today = time.localtime(moment), time.localtime(now)
    near = (day.tm_year, day.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M" if near else "%a %d %b %H:%M", day)


# --- why a command failed

_AWAY = re.compile(
    r"Unable to contact slurm controller|Socket timed out|connect failure|Connection refused"
    r"|Zero Bytes were transmitted|Slurm backup controller in standby"
    r"|Unable to establish|temporarily unable|Slurm controller not responding"
    r"|Communication connection failure|Transport endpoint|Unable to resolve",
    re.IGNORECASE,
)
_OPTIONS: tuple[tuple[str, str], ...] = (  # the first that matches counts
    (r"unrecognized option|invalid option|unable to parse|Invalid directive|ambiguous", "--sbatch"),
    (r"account or account/partition|invalid account", "--account, or --partition"),
    (r"\bqos\b.*invalid|invalid qos", "--qos"),
    (r"accounting/QOS policy", "--time, --gpus, --qos or --account"),
    (r"invalid partition|group not permitted|partition.*(is )?(down|inactive|not available)", "--partition"),
    (r"time limit", "--time, or --partition"),
    (r"generic resource|\bgres\b|--gpus", "--gpus, --gpu-type, or --partition"),
    (r"memory", "--mem"),
    (r"node count", "--nodes, or --partition"),
    (r"CPU count|processors|cpus", "--cpus"),
    (r"node configuration", "--gpus, --gpu-type, --cpus, --mem, --nodes, or --partition"),
    (r"reservation|license|feature|constraint|invalid", "--sbatch"),
)


class ControllerAway(ConnectError):
    """Slurm's controller (slurmctld) does not answer. Another attempt may succeed."""


def rejected(output: Output, hop: str) -> GpuKernelError:
    """Return the error for a job that sbatch refused."""
    if is_away(output):
        return away(output, hop)
    text = printed(output)
    options = next((found for pattern, found in _OPTIONS if re.search(pattern, text, re.IGNORECASE)), "")
    remedy = (
        "Ask the cluster's administrators, or its documentation, what sbatch must be given (--sbatch LINE)."
    )
    if options:
        remedy = f"Change {options}: {_ADD}"
    return SettingsError(f"sbatch refused the job: {text}", hop=hop, remedy=remedy)


def failed(command: str, output: Output, hop: str) -> AgentError:
    """Return the error for another command of Slurm's that failed."""
    remedy = "Run it by hand on the login node; its administrators can help."
    return AgentError(f"{command} failed: {printed(output)}", hop=hop, remedy=remedy)


def is_gone(output: Output) -> bool:
    """Whether a command failed because the job does not exist any more."""
    return re.search(r"Invalid job id|already completing or completed", output.errors) is not None


def is_away(output: Output) -> bool:
    """Whether a command failed because Slurm's controller did not answer."""
    return _AWAY.search(output.errors) is not None


def away(output: Output, hop: str) -> ControllerAway:
    """Return the error for a controller that does not answer."""
    cause = f"Slurm's controller does not answer: {printed(output)}"
    return ControllerAway(cause, hop=hop, remedy="It may be restarting: wait, or ask its administrators.")


def printed(output: Output) -> str:
    """Return what a command printed to stderr, as one line, without the command's name."""
    lines = [
        re.sub(r"^(sbatch|squeue|scancel|scontrol|sinfo|slurm_\w+)(:? error)?: ", "", one)
        for one in output.errors.splitlines()
    ]
    text = "; ".join(dict.fromkeys(lines))
    return sanitize.one_line(text, 600) or f"it printed nothing (exit status {output.status})"


# --- how a job ended

_REASONS = {
    "TIMEOUT": "it has reached its time limit",
    "CANCELLED": "it was cancelled (scancel)",
    "PREEMPTED": "another job takes its resources (preemption)",
    "NODE_FAIL": "a node of it has failed",
    "DEADLINE": "it has reached its deadline",
}
"""Why Slurm ends a job, by the job's state, as a part of a sentence."""
_REMEDIES = {
    "TIMEOUT": f"{_NEW_JOB} Ask for more time: {_ADD} --time TIME. A function given to gpu_kernel.on_sigterm can save "
    "a checkpoint before the limit.",
    "PREEMPTED": f"{_NEW_JOB[:-1]}; or choose a partition or QOS without preemption: {_ADD} --partition NAME",
    "OUT_OF_MEMORY": f"{_NEW_JOB} Ask for more memory: {_ADD} --mem SIZE; or use fewer worker processes, or smaller "
    "batches.",
    "DEADLINE": "Change --deadline among the --sbatch lines.",
}


class JobEnd(NamedTuple):
    """The end of a job."""

    state: str
    """Slurm's name for the end, or GONE if Slurm does not know the job any more."""
    cause: str
    """A sentence without a full stop: "job 12 has ended: it has reached its time limit of 4:00:00"."""
    remedy: str = _NEW_JOB
    node: str = ""

    def for_front_end(self, *, revives: bool) -> JobEnd:
        """Return the end with the remedy for a front end whose user's next cell `revives` an ended kernel, or does
        not."""
        remedy = self.remedy if revives else self.remedy.replace("Run a cell", "Restart the kernel")
        return self._replace(remedy=remedy)


def job_end(job_id: str, record: JobRecord | None) -> JobEnd | None:
    """Return the end; None if the job has not ended. `record`: None if Slurm does not know the job any more."""
    if record is None:
        cause = f"Slurm does not list job {job_id} any more, and has no accounting that tells how it ended"
        return JobEnd(GONE, cause)
    if record.state not in ENDED:
        return None
    explain = {"CANCELLED": _cancelled, "FAILED": _failed}.get(record.state, _ended)
    how, remedy = explain(record)
    return JobEnd(record.state, f"job {job_id} {how}", remedy, record.node)


def _ended(record: JobRecord) -> tuple[str, str]:
    """Return how a job ended that neither failed nor was cancelled, and the remedy."""
    state, detail = record.state, ""
    if state == "COMPLETED":
        return "has ended normally", _NEW_JOB
    if state == "OUT_OF_MEMORY":
        asked = f" (it asked for {record.memory})" if record.memory else ""
        reason = f"it used more memory than Slurm allowed it{asked}, and was killed"
    else:
        reason = _REASONS.get("NODE_FAIL" if state == "BOOT_FAIL" else state, f"its state is {state}")
    if state == "TIMEOUT" and record.time_limit:
        detail = f" of {record.time_limit}"
    elif state in ("NODE_FAIL", "BOOT_FAIL") and record.node:
        detail = f": {record.node}"
    return f"has ended: {reason}{detail}", _REMEDIES.get(state, _NEW_JOB)


def _cancelled(record: JobRecord) -> tuple[str, str]:
    by = record.cancelled_by
    if not by:
        return "was cancelled (scancel); Slurm tells by whom only where it has accounting", _NEW_JOB
    ask = "Ask them, or the cluster's administrators, before starting a new one."
    return f"was cancelled by {by}", _NEW_JOB if by.startswith("you ") else ask


def _failed(record: JobRecord) -> tuple[str, str]:
    logs = "“jupyter gpu-kernel logs ID” shows what"
    if record.reason == "BadConstraints":
        fix = f"Change --gpus, --gpu-type, --cpus, --mem or --partition: {_ADD}"
        return "failed: no node can give what it asks for (BadConstraints)", fix
    if record.signal:
        return (
            f"failed: its first process was ended by {signal_name(record.signal)}",
            f"{logs} happened before.",
        )
    if known := EXIT_STATUSES.get(record.exit_code):
        return f"failed: {known[0]}", known[1]
    by_hand = "Run the set-up lines (--setup) by hand in a job."
    return f"failed with exit status {record.exit_code}", f"{logs} it printed. {by_hand}"
