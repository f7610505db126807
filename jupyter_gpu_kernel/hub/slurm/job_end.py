"""Why a job has ended, in sentences: the cause, and what to change. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ...wire.texts import signal_name
from ..node.install.deploy import EXIT_STATUSES
from .dialect import ENDED, GONE, JobRecord

_ADD = "jupyter gpu-kernel add … --slurm --replace"


class JobEnd(NamedTuple):
    """The end of a job."""

    state: str
    """Slurm's name for it, or GONE if Slurm knows the job no more."""
    cause: str
    """A sentence without a full stop: "job 12 reached its time limit of 4:00:00"."""
    remedy: str = ""
    node: str = ""
    output: str = ""
    """The file with the job's output, on its node."""

    def for_front_end(self, *, revives: bool) -> JobEnd:
        """Return it with the remedy for a front end whose user's next cell `revives` an ended kernel, or does not."""
        return (
            self if revives else self._replace(remedy=self.remedy.replace("Run a cell", "Restart the kernel"))
        )


def job_end(job_id: str, record: JobRecord | None) -> JobEnd | None:
    """Return the end; None if the job has not ended. `record`: None if Slurm knows the job no more."""
    if record is None:
        cause = f"Slurm does not list job {job_id} any more, and has no accounting that tells how it ended"
        return JobEnd(GONE, cause, "Run a cell to start a new job.")
    if record.state not in ENDED:
        return None
    by = record.user or (f"uid {record.uid}" if record.uid else "")
    cause, remedy = _sentences(f"job {job_id}", record, by)
    return JobEnd(record.state, cause, remedy, record.node, record.output)


def _sentences(job: str, record: JobRecord, by: str) -> tuple[str, str]:
    state, node = record.state, record.node or "its node"
    if state == "TIMEOUT":
        limit = f" of {record.time_limit}" if record.time_limit else ""
        remedy = (
            f"Ask for more time: {_ADD} --time TIME. A function given to gpu_kernel.on_sigterm can save a checkpoint "
            "before the limit."
        )
        return f"Slurm ended {job} at its time limit{limit}", remedy
    if state == "CANCELLED":
        return _cancelled(job, record, by)
    if state == "PREEMPTED":
        place = f" (partition {record.partition})" if record.partition else ""
        return (
            f"Slurm preempted {job}{place}: a job of a higher priority took its resources",
            f"Run a cell to start a new job; or choose a partition or QOS without preemption: {_ADD} --partition NAME",
        )
    if state in ("NODE_FAIL", "BOOT_FAIL"):
        return (
            f"{job} ended because {node} failed or lost its connection to Slurm",
            "Run a cell to start a new job.",
        )
    if state == "OUT_OF_MEMORY":
        memory = f" (it asked for {record.memory})" if record.memory else ""
        return (
            f"{job} used more memory than Slurm allowed it{memory}, and was killed",
            f"Ask for more memory: {_ADD} --mem SIZE; or use fewer worker processes, or smaller batches.",
        )
    if state == "DEADLINE":
        return f"{job} could not end before its deadline", "Change --deadline among the --sbatch lines."
    if state == "COMPLETED":
        return f"{job} has ended normally", "Run a cell to start a new job."
    if state == "FAILED":
        return _failed(job, record)
    return f"{job} has ended in the state {state}", "Run a cell to start a new job."


def _cancelled(job: str, record: JobRecord, by: str) -> tuple[str, str]:
    if record.own:
        return f"{job} was cancelled by you ({by})", "Run a cell to start a new job."
    if by:
        return (
            f"{job} was cancelled by {by}",
            "Ask them, or the cluster's administrators, before starting a new one.",
        )
    return (
        f"{job} was cancelled (scancel); Slurm tells by whom only where it has accounting",
        "Run a cell to start a new job.",
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
