"""What Slurm says in sentences for users: why a job waits, was refused, or has ended; and what to change. Pure."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from ...errors import AgentError, ConnectError, GpuKernelError, SettingsError
from ...wire.slurm import END_REASONS
from ...wire.texts import signal_name
from .. import sanitize
from ..node.install import EXIT_STATUSES
from ..transport.connection import Output
from .dialect import ENDED, GONE, JobRecord, JobState

_ADD = "jupyter gpu-kernel add … --slurm --replace"
_NEW_JOB = "Run a cell to start a new job."
_CANCEL = "Interrupt the cell to cancel the job."


# --- jobs that wait


class PendingReason(NamedTuple):
    """Why a job is pending. `remedy`: what to change, if it would wait for ever; else ""."""

    text: str
    remedy: str = ""


_RELEASE = "Release it with scontrol release, or ask the cluster's administrators."
_ONE_JOB = r"Max\w*(Time|Wall|PerJob|PerNode)"
"""A limit that one job exceeds by itself, in Slurm's word for a limit of a QOS or an account."""
_BEYOND = "it asks for more than a limit of the {} allows one job"
_REACHED = "a limit of the {} is reached: it starts when other jobs have ended"
_TOO_MUCH = "no node of the partition has so many CPUs, GPUs or so much memory"
_NODES = "it asks for more nodes than the partition has or allows"
_REASONS: tuple[tuple[str, str, str], ...] = (
    (r"(None)?$", "Slurm has not looked at it yet", ""),
    (r"Resources$", "it is next, as soon as enough is free", ""),
    (r"Priority$", "other jobs have a higher priority", ""),
    (r"Dependency$", "it depends on another job", ""),
    (r"BeginTime$", "its begin time has not come", ""),
    (r"Reservation$", "it waits for its reservation", ""),
    (r"Licenses$", "it waits for a licence", ""),
    (r"Prolog$", "the node is being prepared", ""),
    (r"Cleaning$", "an earlier attempt is being cleaned up", ""),
    (r"ReqNodeNotAvail", "a node that it needs is not available, perhaps because of maintenance", ""),
    (r".*(DOWN|DRAINED)", "the nodes that it could use are down, drained or reserved", ""),
    (r"JobHeldAdmin", "it is held by an administrator", _RELEASE),
    (r"JobHeldUser|JobHoldMaxRequeue|.*held", "it is held (scontrol hold)", _RELEASE),
    (r"PartitionTimeLimit$", "its time limit is above that of the partition", "--time, or --partition"),
    (r"PartitionNodeLimit$", _NODES, "--nodes, or --partition"),
    (r"PartitionConfig$", _TOO_MUCH, "--cpus, --mem, --gpus, or --partition"),
    (r"PartitionInactive$", "the partition is not in use", "--partition"),
    (r"BadConstraints$", "no node can give what it asks for", "--gpus, --gpu-type, --mem, or --partition"),
    (r"AccountNotAllowed$", "the account may not use the partition", "--account, or --partition"),
    (r"QOSNotAllowed$", "the QOS may not be used in the partition", "--qos, or --partition"),
    (r"InvalidAccount$", "the account is not valid", "--account"),
    (r"InvalidQOS$", "the QOS is not valid", "--qos"),
    (rf"QOS\w*{_ONE_JOB}", _BEYOND.format("QOS"), "--time, --gpus or --qos"),
    (rf"(Assoc\w*)?{_ONE_JOB}", _BEYOND.format("account"), "--time, --gpus or --qos"),
    (r"QOS", _REACHED.format("QOS"), ""),
    (r"Assoc|Max\w*Per", _REACHED.format("account"), ""),
)
"""Slurm's reasons, of which the first one counts that matches; the words for them; and, for a job that would wait for
ever, the options to change or what else to do."""


def why_pending(reason: str) -> PendingReason:
    """Return the words for Slurm's reason, which stay next to it."""
    found = ((text, remedy) for pattern, text, remedy in _REASONS if re.match(pattern, reason))
    text, remedy = next(found, ("Slurm gives this reason", ""))
    if remedy.startswith("--"):
        remedy = f"It would wait for ever: interrupt it, and change {remedy}: “{_ADD}”"
    return PendingReason(text, remedy)


def not_submitted_text(login: str, error: GpuKernelError) -> str:
    """Return what the waiting cell shows while its job cannot be submitted."""
    why = f"{error.cause}; waiting for it"
    return f"{login}: no Slurm job was submitted for this kernel yet: {why}\nInterrupt the cell to give up."


def waiting_text(login: str, job: JobState, now: float) -> str:
    """Return what the waiting cell shows of a job that waits, or is about to run."""
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
        remedy = f"Change {options}: “{_ADD}”"
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
    """Return what a command printed to stderr, as one line, without the command's name. An account whose shell begins
    no command, such as nologin, prints why to stdout."""
    said = output.errors.splitlines()
    if output.status and not said:
        said = list(output.lines)
    lines = [
        re.sub(r"^(sbatch|squeue|scancel|scontrol|sinfo|slurm_\w+)(:? error)?: ", "", one) for one in said
    ]
    text = "; ".join(dict.fromkeys(lines))
    return sanitize.one_line(text, 600) or f"it printed nothing (exit status {output.status})"


# --- how a job ended

_REMEDIES = {
    "TIMEOUT": f"{_NEW_JOB} Ask for more time: “{_ADD} --time TIME”. A function given to gpu_kernel.on_sigterm can "
    "save a checkpoint before the limit.",
    "PREEMPTED": f"{_NEW_JOB[:-1]}; or choose a partition or QOS without preemption: “{_ADD} --partition NAME”",
    "OUT_OF_MEMORY": f"{_NEW_JOB} Ask for more memory: “{_ADD} --mem SIZE”; or use fewer worker processes, or smaller "
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
        reason = END_REASONS.get("NODE_FAIL" if state == "BOOT_FAIL" else state, f"its state is {state}")
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
        fix = f"Change --gpus, --gpu-type, --cpus, --mem or --partition: “{_ADD}”"
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
