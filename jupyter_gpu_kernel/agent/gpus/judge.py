"""Judges GPUs: which of them nobody uses, and why not the others. Pure: it reads and takes nothing.

Free = allowed, usable, not leased, nobody on it, no unexplained memory, quiet over several samples. When in
doubt, not free: taking a GPU from somebody is worse than waiting. Must not know how samples are come by.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .lease import Holder
from .nvidia_smi_csv import Gpu, GpuProcess, SmiError

_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_NO_MIB = 64  # less than any CUDA context takes


class Settings(NamedTuple):
    """How a GPU is judged and waited for. Times in seconds."""

    samples: int = 3
    interval: float = 0.4  # from the begin of one sample of the first decision to the next
    fresh: float = 60.0  # older samples say nothing; the measurement after the lease is always new
    wait: Tuple[float, float] = (2.0, 3.0)  # between samples while waiting: from, to
    ghost_mib: int = 500  # memory that may be in use without a visible process (the display, the driver)
    busy_percent: int = 10


DEFAULTS = Settings()


class Verdict(NamedTuple):
    """`reason` says why it is not free; `hopeless`: and waiting will not change that."""

    gpu: Gpu
    free: bool
    reason: str = ""
    hopeless: bool = False
    holder: Optional[Holder] = None

    def to_json(self) -> Dict[str, Any]:
        """As the `gpus` verb shows it, less the node."""
        gpu = self.gpu
        return {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "name": gpu.name,
            "memory_used_mib": gpu.memory_used_mib,
            "memory_total_mib": gpu.memory_total_mib,
            "utilization": gpu.utilization,
            "processes": [process._asdict() for process in gpu.processes],
            "lease": self.holder._asdict() if self.holder else None,
            "free": self.free,
            "reason": self.reason,
        }


def in_allocation(environ: Mapping[str, str]) -> bool:
    """Whether a scheduler gave us our GPUs: then they are used as given, without search or lease."""
    return "CUDA_VISIBLE_DEVICES" in environ and any(job in environ for job in _JOBS)


def allowed_gpus(environ: Mapping[str, str]) -> Optional[List[str]]:
    """What a preset CUDA_VISIBLE_DEVICES leaves us: indices, UUIDs or their beginnings; None: any.

    It is never widened, in a job or out of one. A Slurm job without the variable was given no GPU; but
    an ssh session that was adopted into a job has only SLURM_JOB_ID, and sees what its cgroup lets it see.
    """
    preset = environ.get("CUDA_VISIBLE_DEVICES")
    if preset is None:
        return [] if "SLURM_JOB_ID" in environ and "SLURMD_NODENAME" in environ else None
    allowed = []
    for entry in preset.split(","):
        word = entry.strip()
        if not (word.isdigit() or word.startswith(("GPU-", "MIG-"))):
            break  # as CUDA does: an invalid entry ("-1", "NoDevFiles") hides those behind it
        allowed.append(word)
    return allowed


def judge(
    samples: Sequence[Sequence[Gpu]],
    *,
    leases: Optional[Mapping[str, Holder]] = None,
    allowed: Optional[Sequence[str]] = None,
    settings: Settings = DEFAULTS,
) -> List[Verdict]:
    """A verdict on each GPU of the newest sample. `samples`: oldest first; the last few count.

    `leases`: those of others, by UUID (none of our own). `allowed`: see `allowed_gpus`.
    """
    recent = samples[-settings.samples :]
    if not recent:
        return []
    verdicts = []
    for gpu in recent[-1]:
        never = _never(gpu, allowed)
        holder = (leases or {}).get(gpu.uuid)
        seen = [old for sample in recent for old in sample if old.uuid == gpu.uuid]
        reason = never or (str(holder) if holder else "") or _in_use(seen, settings)
        verdicts.append(Verdict(gpu, not reason, reason, bool(never), holder))
    return verdicts


def choose(verdicts: Iterable[Verdict], count: int, ahead: int = 0) -> Optional[List[Gpu]]:
    """The first `count` free GPUs behind the `ahead` that others are to have; None where there are fewer."""
    free = sorted((verdict.gpu for verdict in verdicts if verdict.free), key=lambda gpu: gpu.index)
    return free[ahead : ahead + count] if len(free) >= ahead + count else None


def require(verdicts: Sequence[Verdict], count: int) -> None:
    """Raises SmiError (few) where no waiting can ever give `count` GPUs."""
    usable = sum(not verdict.hopeless for verdict in verdicts)
    if usable < count:
        cause = f"{_gpus(count)} asked for, but this node has {usable or 'none'} that we may use"
        listed = "".join(f"\n{_queue(verdict)}" for verdict in verdicts)
        raise SmiError(
            "few",
            cause + listed,
            "Ask for fewer (--gpus N), use another node, or ask the scheduler for more.",
        )


def waiting_text(verdicts: Sequence[Verdict], count: int, place: str = "", ahead: int = 0) -> str:
    """The visible lines of a cell that waits: for what, then each GPU with the reason why it is not free.

    `place`: the node's name for the user. `ahead`: as many GPUs go to the user's own kernels first.
    """
    where = f" on {place}" if place else ""
    queue = f" Your kernels that came before get {_gpus(ahead)} first." if ahead else ""
    together = " They are taken together or not at all." if count > 1 else ""
    head = f"Waiting for {_gpus(count)}{where}.{together}{queue} Interrupt the kernel to stop waiting."
    return "\n".join([head, *map(_queue, verdicts)])


def _never(gpu: Gpu, allowed: Optional[Sequence[str]]) -> str:
    """Why this GPU is not for us, today or later; "" if it is."""
    if gpu.problem:
        return gpu.problem
    # Indices are nvidia-smi's, CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID; in a device cgroup both begin at 0.
    if allowed is not None and not any(
        word == str(gpu.index) or gpu.uuid.startswith(word) for word in allowed
    ):
        return "not in the allocation (CUDA_VISIBLE_DEVICES)"
    if gpu.compute_mode == "Prohibited":
        return "compute mode Prohibited"
    if gpu.mig_mode == "Enabled":
        return "MIG is on: only its parts could be used, which is not supported yet"
    return ""


def _in_use(seen: Sequence[Gpu], settings: Settings) -> str:
    """Why a GPU is not idle, from its samples, oldest first; "" if it is."""
    reason = _occupied(seen[-1], settings)
    if reason:
        return reason
    # Whoever starts one short process after the other has not left the GPU.
    for older in reversed(seen[:-1]):
        reason = _occupied(older, settings)
        if reason:
            return f"a moment ago: {reason}"
    count = f"{len(seen)} sample{'s' if len(seen) > 1 else ''}"
    peak = max((gpu.utilization for gpu in seen if gpu.utilization is not None), default=0)
    if peak >= settings.busy_percent:
        alone = "" if _unexplained(seen[-1]) > _NO_MIB else ", though nothing is on it"
        return f"busy: {peak} % over {count}{alone}"
    return f"being watched: {count} of {settings.samples}" if len(seen) < settings.samples else ""


def _occupied(gpu: Gpu, settings: Settings) -> str:
    if gpu.processes:
        return _people(gpu.processes)
    if gpu.memory_used_mib is None:
        return "memory use is unknown ([N/A])"
    ghost = _unexplained(gpu)
    if ghost > settings.ghost_mib:
        return f"{_size(ghost)} are used by no visible process (a ghost or a container)"
    # Virtual GPUs tell no utilization. Nobody computes without memory, so an empty one may be taken.
    if gpu.utilization is None and ghost > _NO_MIB:
        return f"utilization is unknown ([N/A]), and {_size(ghost)} are used"
    return ""


def _unexplained(gpu: Gpu) -> int:
    """MiB used beyond what the listed processes have. From driver 510 on, used is without reserved."""
    return (gpu.memory_used_mib or 0) - sum(process.memory_mib or 0 for process in gpu.processes)


def _people(processes: Sequence[GpuProcess]) -> str:
    """ "bob is on it (pid 1234, python, 11.9 GiB)", the largest process first."""
    by_size = sorted(processes, key=lambda process: -(process.memory_mib or 0))
    users = list(dict.fromkeys("somebody" if process.user == "?" else process.user for process in by_size))
    first = by_size[0]
    facts = [f"pid {first.pid or '?'}", first.name]
    facts += [_size(first.memory_mib)] if first.memory_mib is not None else []
    facts += [f"since {time.strftime('%b %d %H:%M', time.localtime(first.since))}"] if first.since else []
    facts += [f"{len(by_size) - 1} more"] if len(by_size) > 1 else []
    return f"{' and '.join(users)} {'is' if len(users) == 1 else 'are'} on it ({', '.join(facts)})"


def _queue(verdict: Verdict) -> str:
    return f"  {verdict.gpu}: {verdict.reason or 'free'}"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _size(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib} MiB"
