"""What Slurm says in sentences for users: why a job waits, was refused, or has ended; and what to change. Pure."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from ...errors import AgentError, ConnectError, GpuKernelError, SettingsError
from ...wire.slurm import END_REASONS
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


_WAITS = {
    "": "Slurm has not looked at it yet",
    "None": "Slurm has not looked at it yet",
    "Resources": "it is next, as soon as enough is free",
    "Priority": "other jobs have a higher priority",
    "Dependency": "it depends on another job",
    "BeginTime": "its begin time has not come",
    "Reservation": "it waits for its reservation",
    "Licenses": "it waits for a licence",
    "Prolog": "the node is being prepared",
    "Cleaning": "an earlier attempt is being cleaned up",
    "ReqNodeNotAvail": "a node that it needs is not available, perhaps because of maintenance",
}
_FOREVER = {
    "PartitionTimeLimit": ("its time limit is above that of the partition", "--time, or --partition"),
    "PartitionNodeLimit": (
        "it asks for more nodes than the partition has or allows",
        "--nodes, or --partition",
    ),
    "PartitionConfig": (
        "no node of the partition has so many CPUs, GPUs or so much memory",
        "--cpus, --mem, --gpus, or --partition",
    ),
    "PartitionInactive": ("the partition is not in use", "--partition"),
    "BadConstraints": ("no node can give what it asks for", "--gpus, --gpu-type, --mem, or --partition"),
    "AccountNotAllowed": ("the account may not use the partition", "--account, or --partition"),
    "QOSNotAllowed": ("the QOS may not be used in the partition", "--qos, or --partition"),
    "InvalidAccount": ("the account is not valid", "--account"),
    "InvalidQOS": ("the QOS is not valid", "--qos"),
}
_HELD = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "launch_failed_requeued_held", "held")


def why_pending(reason: str) -> PendingReason:
    """Return the words for Slurm's reason, which stay next to it."""
    if reason in _FOREVER:
        text, options = _FOREVER[reason]
        return PendingReason(text, f"It would wait for ever: interrupt it, and change {options}: {_ADD}")
    if any(one in reason for one in _HELD):
        who = "by an administrator" if "Admin" in reason else "(scontrol hold)"
        return PendingReason(
            f"it is held {who}", "Release it with scontrol release, or ask the cluster's administrators."
        )
    if reason.startswith("ReqNodeNotAvail"):
        return PendingReason(_WAITS["ReqNodeNotAvail"])
    if "DOWN" in reason or "DRAINED" in reason:
        return PendingReason("the nodes that it could use are down, drained or reserved")
    if match := re.match(r"(QOS|Assoc|Max\w*Per)\w*", reason):
        whose = "of the QOS" if match[1] == "QOS" else "of the account"
        if re.search(r"Max\w*(Time|Wall|PerJob|PerNode)", reason):
            return PendingReason(
                f"it asks for more than a limit {whose} allows one job",
                f"Change --time, --gpus or --qos: {_ADD}",
            )
        return PendingReason(f"a limit {whose} is reached: it starts when other jobs have ended")
    return PendingReason(_WAITS.get(reason, "Slurm gives this reason"))


def submitting_text(login: str) -> str:
    """Return what the waiting cell shows while its job is being submitted."""
    return f"{login}: submitting a Slurm job for this kernel"


def not_submitted_text(login: str, why: str) -> str:
    """Return what the waiting cell shows while its job cannot be submitted."""
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
    """Slurm's controller (slurmctld) does not answer: it may come back."""


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
    remedy: str = ""
    node: str = ""
    output: str = ""
    """The file with the job's output, on its node."""

    def for_front_end(self, *, revives: bool) -> JobEnd:
        """Return the end with the remedy for a front end whose user's next cell `revives` an ended kernel, or does
        not."""
        return (
            self if revives else self._replace(remedy=self.remedy.replace("Run a cell", "Restart the kernel"))
        )


def job_end(job_id: str, record: JobRecord | None) -> JobEnd | None:
    """Return the end; None if the job has not ended. `record`: None if Slurm does not know the job any more."""
    if record is None:
        cause = f"Slurm does not list job {job_id} any more, and has no accounting that tells how it ended"
        return JobEnd(GONE, cause, _NEW_JOB)
    if record.state not in ENDED:
        return None
    job = f"job {job_id}"
    if record.state == "CANCELLED":
        cause, remedy = _cancelled(job, record)
    elif record.state == "FAILED":
        cause, remedy = _failed(job, record)
    elif record.state == "COMPLETED":
        cause, remedy = f"{job} has ended normally", _NEW_JOB
    else:
        cause, remedy = f"{job} has ended: {_why(record)}", _REMEDIES.get(record.state, _NEW_JOB)
    return JobEnd(record.state, cause, remedy, record.node, record.output)


def _why(record: JobRecord) -> str:
    """Return why a job has ended that neither failed nor was cancelled."""
    state = record.state
    if state == "OUT_OF_MEMORY":
        asked = f" (it asked for {record.memory})" if record.memory else ""
        return f"it used more memory than Slurm allowed it{asked}, and was killed"
    reason = END_REASONS.get("NODE_FAIL" if state == "BOOT_FAIL" else state, f"its state is {state}")
    detail = ""
    if state == "TIMEOUT" and record.time_limit:
        detail = f" of {record.time_limit}"
    elif state in ("NODE_FAIL", "BOOT_FAIL") and record.node:
        detail = f": {record.node}"
    return f"{reason}{detail}"


def _cancelled(job: str, record: JobRecord) -> tuple[str, str]:
    by = record.user or (f"uid {record.uid}" if record.uid else "")
    if record.own:
        return f"{job} was cancelled by you ({by})", _NEW_JOB
    if by:
        return (
            f"{job} was cancelled by {by}",
            "Ask them, or the cluster's administrators, before starting a new one.",
        )
    return (
        f"{job} was cancelled (scancel); Slurm tells by whom only where it has accounting",
        _NEW_JOB,
    )


def _failed(job: str, record: JobRecord) -> tuple[str, str]:
    if record.reason == "BadConstraints":
        return f"{job} failed: no node can give what it asks for (BadConstraints)", (
            f"Change --gpus, --gpu-type, --cpus, --mem or --partition: {_ADD}"
        )
    if record.signal:
        return f"{job} failed: its first process was ended by {signal_name(record.signal)}", (
            "“jupyter gpu-kernel logs ID” shows what happened before."
        )
    known = EXIT_STATUSES.get(record.exit_code)
    if known is not None:
        return f"{job} failed: {known[0]}", known[1]
    return f"{job} failed with exit status {record.exit_code}", (
        "“jupyter gpu-kernel logs ID” shows what it printed. Run the set-up lines (--setup) by hand in a job."
    )
