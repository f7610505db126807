"""What to change when sbatch refuses a job: the options of `add`, by sbatch's words. Pure."""

from __future__ import annotations

import re

from ...errors import AgentError, ConnectError, GpuKernelError, SettingsError
from .. import sanitize
from .login_node import Output

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
    said = words(output)
    for pattern, options in _OPTIONS:
        if re.search(pattern, said, re.IGNORECASE):
            remedy = f"Change {options}: jupyter gpu-kernel add … --slurm --replace"
            return SettingsError(f"sbatch refused the job: {said}", hop=hop, remedy=remedy)
    remedy = (
        "Ask the cluster's administrators, or its documentation, what sbatch must be given (--sbatch LINE)."
    )
    return SettingsError(f"sbatch refused the job: {said}", hop=hop, remedy=remedy)


def failed(command: str, output: Output, hop: str) -> AgentError:
    """Return the error for another command of Slurm's that failed."""
    remedy = "Run it by hand on the login node; its administrators can help."
    return AgentError(f"{command} failed: {words(output)}", hop=hop, remedy=remedy)


def is_gone(output: Output) -> bool:
    """Whether a command failed because the job does not exist any more."""
    return re.search(r"Invalid job id|already completing or completed", output.errors) is not None


def is_away(output: Output) -> bool:
    """Whether a command failed because Slurm's controller did not answer."""
    return _AWAY.search(output.errors) is not None


def away(output: Output, hop: str) -> ControllerAway:
    """Return the error for a controller that does not answer."""
    cause = f"Slurm's controller does not answer: {words(output)}"
    return ControllerAway(cause, hop=hop, remedy="It may be restarting: wait, or ask its administrators.")


def words(output: Output) -> str:
    """Return what a command printed to stderr, as one line, without the command's name."""
    lines = [
        re.sub(r"^(sbatch|squeue|scancel|scontrol|sinfo|slurm_\w+)(:? error)?: ", "", one)
        for one in output.errors.splitlines()
    ]
    text = "; ".join(dict.fromkeys(lines))
    return sanitize.one_line(text, 600) or f"it printed nothing (exit status {output.status})"
