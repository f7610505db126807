"""Judges which GPUs are free, and why the others are not. Pure functions: they read and take nothing.

A GPU is free if it is allowed, usable, not leased, has no processes and no unexplained memory use, and was idle in
several samples. One sample is enough if it shows the GPU empty: no process, no memory in use, and no load over the time
over which the driver averages it. In doubt it is not free: taking somebody's GPU is worse than waiting. This module
does not know how samples are taken.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...wire.texts import STOP_HINT, memory_size
from .devices.gpu import Gpu, SmiError, is_amd
from .devices.topology import Topology, best_set
from .requirements import ANY_GPU, Requirements, free_memory
from .sharing.lease import Holder
from .sharing.queue_view import gpu_count, place_text
from .sharing.queue_view import lines as queue_lines
from .sharing.turns import WaitingKernel, kept_gpus

WAITING = "Waiting for"
"""The beginning of the text of a cell for which too few GPUs are free."""
_NO_MIB = 64  # a CUDA context takes more


class Criteria(NamedTuple):
    """When a GPU counts as free, and how often it is sampled. Times are in seconds."""

    samples: int = 3  # the number of samples that a verdict needs
    empty_samples: int = 1  # the number of samples for a GPU that is empty in all of them
    interval: float = 0.4  # between the starts of two samples, before the first verdict
    unhurried: float = 1.0  # the interval if no cell needs the verdict yet, or a GPU was just freed
    span: float = 0.25  # from the first sample to that which confirms: the driver averages over 1/6 s or more
    fresh: float = 60.0  # the age at which a sample is too old
    wait: Tuple[float, float] = (2.0, 3.0)  # between two samples while a cell waits: from, to
    unexplained_mib: int = 500  # memory that may be used without a visible process (the display, the driver)
    busy_percent: int = 10  # the utilization from which on a GPU is busy


DEFAULT_CRITERIA = Criteria()


class Verdict(NamedTuple):
    """Whether a GPU is free. `reason`: why it is not; `unusable`: waiting will not change that."""

    gpu: Gpu
    free: bool
    reason: str = ""
    unusable: bool = False
    holder: Optional[Holder] = None
    idle_since: Optional[float] = None  # when the holder's last work ended, if that is known and long ago
    pending: bool = False  # whether more samples are needed

    def to_json(self) -> Dict[str, Any]:
        """Return the row of `jupyter gpu-kernel gpus --json`, without the node."""
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
            "idle_since": self.idle_since,
            "free": self.free,
            "reason": self.reason,
            "warning": gpu.warning,
        }


def judge(
    samples: Sequence[Sequence[Gpu]],
    needs: Requirements = ANY_GPU,
    leases: Mapping[str, Holder] = {},
    criteria: Criteria = DEFAULT_CRITERIA,
) -> List[Verdict]:
    """Return a verdict on each GPU of the newest sample.

    samples: Oldest first; the last `criteria.samples` count.
    needs: What is required of the GPUs.
    leases: The holders of the leases of others, by UUID.
    """
    recent = samples[-criteria.samples :]
    if not recent:
        return []
    verdicts = []
    for gpu in recent[-1]:
        broken = gpu.problem or ("compute mode Prohibited" if gpu.compute_mode == "Prohibited" else "")
        unusable = broken or _mig_reason(gpu, recent[-1], needs.gpus) or needs.unusable_reason(gpu)
        holder = leases.get(gpu.uuid)
        readings = [old for sample in recent for old in sample if old.uuid == gpu.uuid]
        reason = unusable or (str(holder) if holder else "") or _busy_reason(readings, criteria)
        needed = criteria.empty_samples if all(map(_is_empty, readings)) else criteria.samples
        unused_now = not (unusable or holder or _busy_reason(readings[-1:], criteria))
        pending = unused_now and (bool(reason) or len(readings) < needed)
        if pending and not reason:
            reason = f"being checked: {len(readings)} of {needed} samples taken"
        idle_since = holder.idle_since if holder and not any(old.utilization for old in readings) else None
        verdicts.append(Verdict(gpu, not reason, reason, bool(unusable), holder, idle_since, pending))
    return verdicts


def choose(
    verdicts: Iterable[Verdict],
    count: int,
    ahead: Iterable[WaitingKernel] = (),
    links: Optional[Topology] = None,
) -> Optional[List[Gpu]]:
    """Return `count` free GPUs, or None if there are fewer, beside those kept for the kernels that come first.

    GPUs without a warning come first; a single GPU is the one with the most free memory.

    `links`: how near the GPUs are to each other; of several sets the nearest is chosen.
    """
    free = sorted((verdict.gpu for verdict in verdicts if verdict.free), key=_preference)
    pairs = kept_gpus(ahead, [gpu.uuid for gpu in free])
    kept = {uuid for kernel, uuids in pairs if not kernel.passed for uuid in uuids}
    free = [gpu for gpu in free if gpu.uuid not in kept]
    if len(free) < count:
        return None
    sound = [gpu for gpu in free if not gpu.warning]
    free = sound if len(sound) >= count else free
    if count < 2:
        return free[:count]
    nearest = best_set(sorted(gpu.index for gpu in free), count, links or {})
    return sorted((gpu for gpu in free if gpu.index in nearest), key=lambda gpu: gpu.index)


def require_usable(verdicts: Sequence[Verdict], count: int) -> None:
    """Raise SmiError (few) if fewer than `count` GPUs will ever be free."""
    usable = sum(not verdict.unusable for verdict in verdicts)
    if usable < count:
        cause = f"{gpu_count(count)} requested, but this node has {usable or 'none'} that can be used"
        raise SmiError(
            "few",
            "\n".join([cause, *map(_line, verdicts)]),
            "Request fewer GPUs (--gpus N) or other ones (--min-memory, --gpu-type), use another node, or request more "
            "from the scheduler.",
        )


def _preference(gpu: Gpu) -> Tuple[int, int]:
    """Return the key of the order in which free GPUs are taken: what a display uses makes no difference."""
    return -((free_memory(gpu) or 0) // 1024), gpu.index


def waiting_text(
    verdicts: Sequence[Verdict],
    count: int,
    node: str = "",
    ahead: Sequence[WaitingKernel] = (),
    limit: str = "",
    notebooks: Mapping[str, str] = {},
) -> str:
    """Return what a waiting cell shows: what it waits for, and why each GPU is not free.

    `node`: its name; `ahead`: the kernels that get GPUs before this one, `notebooks`: those of this user's kernels, by
    id; `limit`: why it waits whatever is free.
    """
    where = f" on {node}" if node else ""
    together = " They are taken together or not at all." if count > 1 else ""
    place = f" {limit}" if limit else place_text(ahead)
    head = f"{WAITING} {gpu_count(count)}{where}.{together}{place}{STOP_HINT}"
    return "\n".join([head, *map(_line, verdicts), *queue_lines(ahead, notebooks)])


def _mig_reason(gpu: Gpu, gpus: Sequence[Gpu], count: int) -> str:
    """Return why MIG keeps us from using this GPU or MIG device; "" if MIG does not."""
    if gpu.mig_mode == "Enabled":
        has_devices = any(one.parent == gpu.uuid for one in gpus)
        return "MIG mode is enabled: " + ("see its MIG devices" if has_devices else "it has no MIG device")
    if gpu.parent and count > 1:
        return "a process can use only one MIG device"
    return ""


def _busy_reason(readings: Sequence[Gpu], criteria: Criteria) -> str:
    """Return why a GPU is not idle, from its samples, oldest first; "" if the GPU is idle."""
    reason = _occupied_reason(readings[-1], criteria)
    if reason:
        return reason
    # Somebody who starts one short process after another still uses the GPU.
    for older in reversed(readings[:-1]):
        reason = _occupied_reason(older, criteria)
        if reason:
            return f"a moment ago: {reason}"
    peak = max((gpu.utilization for gpu in readings if gpu.utilization is not None), default=0)
    if peak >= criteria.busy_percent:
        samples = f"{len(readings)} sample{'s' if len(readings) > 1 else ''}"
        empty = "" if _unexplained_mib(readings[-1]) > _NO_MIB else ", although no process is visible"
        return f"busy: up to {peak} % utilization in {samples}{empty}"
    return ""


def _is_empty(gpu: Gpu) -> bool:
    """Return whether nothing at all is on the GPU, by a driver that reports everything. AMD's averages no load."""
    unused = not gpu.processes and gpu.memory_used_mib is not None and gpu.memory_used_mib <= _NO_MIB
    return unused and gpu.utilization == 0 and not is_amd(gpu.uuid)


def _occupied_reason(gpu: Gpu, criteria: Criteria) -> str:
    if gpu.processes:
        return _processes_text(gpu)
    if gpu.memory_used_mib is None:
        return "the driver does not report its memory use ([N/A])"
    unexplained = _unexplained_mib(gpu)
    if unexplained > criteria.unexplained_mib:
        return f"{memory_size(unexplained)} are used by no visible process (perhaps in a container, or already ended)"
    # Virtual GPUs report no utilization. No computation runs without memory, so an empty GPU is free.
    if gpu.utilization is None and unexplained > _NO_MIB:
        return f"the driver does not report its utilization ([N/A]), and {memory_size(unexplained)} are used"
    return ""


def _unexplained_mib(gpu: Gpu) -> int:
    """Return the MiB in use beyond those of the listed processes. From driver 510 on, "used" excludes "reserved"."""
    return (gpu.memory_used_mib or 0) - sum(process.memory_mib or 0 for process in gpu.processes)


def _processes_text(gpu: Gpu) -> str:
    """ "in use by bob (pid 1234, python, 11.9 GiB)", with the facts of the largest process."""
    by_size = sorted(gpu.processes, key=lambda process: -(process.memory_mib or 0))
    users = dict.fromkeys("an unknown user" if process.user == "?" else process.user for process in by_size)
    largest = by_size[0]
    gone = " is hidden or has ended" if largest.pid and largest.user == "?" else ""
    facts = [f"pid {largest.pid or '?'}{gone}", largest.name]
    facts += [memory_size(largest.memory_mib)] if largest.memory_mib is not None else []
    facts += [f"since {time.strftime('%b %d %H:%M', time.localtime(largest.since))}"] if largest.since else []
    if gpu.utilization == 0 and largest.cpu_seconds is not None:
        facts.append(f"0 % now, {largest.cpu_seconds:.0f} s of CPU time so far")
    facts += [f"{len(by_size) - 1} more"] if len(by_size) > 1 else []
    return f"in use by {' and '.join(users)} ({', '.join(facts)})"


def _line(verdict: Verdict) -> str:
    return f"  {verdict.gpu}: {verdict.reason or 'free'}"
