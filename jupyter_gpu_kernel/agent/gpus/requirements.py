"""Which GPUs a kernel may have: what it requires of each, how many a site lets one user have, and what the environment
of this process allows, or a scheduler has allocated.

Kernels use allocated GPUs as they are, without samples or leases. In a job their variables stay as the scheduler set
them, and only their names are read, for what users see.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...wire.texts import memory_mib, memory_size
from ..kernel_settings import KernelSettings
from ..policy import EVERY_GPU
from ..system.agent_runtime import AgentRuntime
from .devices.gpu import AMD, NVIDIA, Gpu, SmiError, is_amd
from .devices.gpu_reader import device_variable, gpu_reader
from .sharing.queue_view import gpu_count

_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


class Allocation(NamedTuple):
    """What the environment of this process says about GPUs.

    variable: The name of the variable that makes this node's GPUs visible.
    allowed: The GPUs that it allows: indices, UUIDs or their prefixes. None: all.
    uuids: The GPUs that a scheduler has allocated, as `allowed`; [] where kernels search for GPUs.
    """

    variable: str
    allowed: Optional[List[str]]
    uuids: List[str]

    @classmethod
    def current(cls, runtime: AgentRuntime) -> Allocation:
        """Return the allocation of this process."""
        return cls.of(runtime.environ, device_variable())

    @classmethod
    def of(cls, environ: Mapping[str, str], variable: str) -> Allocation:
        """Return the allocation of a process with this environment."""
        allowed = _allowed(environ, variable)
        is_allocated = variable in environ and any(job in environ for job in _JOBS)
        return cls(variable, allowed, (allowed or []) if is_allocated else [])


def job_gpus(runtime: AgentRuntime) -> Dict[str, str]:
    """Return the names of the GPUs that the scheduler has given to this job, by UUID: "GPU 0 (NVIDIA A100)". Blocks.

    A GPU that cannot be read has the word of the scheduler, for both.
    """
    words = Allocation.current(runtime).allowed or []
    try:
        gpus = gpu_reader(runtime).read() if words else []
    except SmiError:
        gpus = []
    return dict(_named(word, gpus) for word in words)


def _named(word: str, gpus: List[Gpu]) -> Tuple[str, str]:
    found = next((gpu for gpu in gpus if gpu.is_named(word)), None)
    return (word, word) if found is None else (found.uuid, str(found))


def _allowed(environ: Mapping[str, str], variable: str) -> Optional[List[str]]:
    """Return the GPUs that `variable` allows: indices, UUIDs or their prefixes. None means all.

    A Slurm job without the variable has no GPU; but an SSH session that was adopted into a job has only
    SLURM_JOB_ID, and sees what its cgroup lets it see.
    """
    preset = environ.get(variable)
    if preset is None:
        return [] if "SLURM_JOB_ID" in environ and "SLURMD_NODENAME" in environ else None
    allowed = []
    for entry in preset.split(","):
        word = entry.strip()
        if not (word.isdigit() or word.startswith(("GPU-", "MIG-"))):
            break  # as in CUDA, an invalid entry ("-1", "NoDevFiles") hides those behind it
        allowed.append(word)
    return allowed


class Requirements(NamedTuple):
    """`memory`: the GPU must have so many MiB, beside those that the driver keeps. `type`: its name contains this text.
    `reserved`: GPUs that the site keeps for other users, by UUIDs, their beginnings, and indices; "*": all. `gpus`: how
    many the kernel needs together. `allowed`: see `Allocation`."""

    memory: int = 0
    type: str = ""
    reserved: Tuple[str, ...] = ()
    gpus: int = 1
    allowed: Optional[Sequence[str]] = None

    @classmethod
    def of(cls, settings: KernelSettings, allowed: Optional[Sequence[str]] = None) -> Requirements:
        """Return what valid settings and the site's policy require."""
        memory, words = memory_mib(settings.min_memory) or 0, settings.gpu_type.strip()
        return cls(memory, words, settings.reserved_gpus, settings.gpus, allowed)

    def unusable_reason(self, gpu: Gpu) -> str:
        """Return why the GPU never meets the requirements; "" if it may."""
        if self.allowed is not None and not any(map(gpu.is_named, self.allowed)):
            return f"not in the allocation ({AMD if is_amd(gpu.uuid) else NVIDIA})"
        if any(word in (str(gpu.index), EVERY_GPU) or _is_named(gpu, word) for word in self.reserved):
            return "reserved by the site's policy"
        if self.type.lower() not in gpu.name.lower():
            return f"its name does not contain “{self.type}”"
        total = gpu.memory_total_mib
        if self.memory and total is None:
            return f"the driver does not report its memory, of which {memory_size(self.memory)} are requested"
        reserved = gpu.memory_reserved_mib or 0
        if total is not None and total - reserved < self.memory:
            kept = f", of which the driver keeps {memory_size(reserved)}" if total >= self.memory else ""
            return (
                f"it has {memory_size(total)} of memory{kept}, but {memory_size(self.memory)} are requested"
            )
        return ""


def _is_named(gpu: Gpu, word: str) -> bool:
    """Whether this is the GPU whose UUID begins so, or a MIG device of it."""
    if word.startswith("AMD-"):  # a number follows
        return word == gpu.uuid
    return not word.isdigit() and any(uuid.startswith(word) for uuid in (gpu.uuid, gpu.parent))


ANY_GPU = Requirements()


def free_memory(gpu: Gpu) -> Optional[int]:
    """Return the MiB that are free; None if they are unknown. From driver 510 on, "used" excludes "reserved"."""
    if gpu.memory_total_mib is None or gpu.memory_used_mib is None:
        return None
    return gpu.memory_total_mib - gpu.memory_used_mib - (gpu.memory_reserved_mib or 0)


def wait_reason(most: Optional[int], count: int, others: int) -> str:
    """Return why a kernel that wants `count` GPUs must wait, whatever is free; "" if it need not.

    most: The GPUs that the site's policy allows a user; None: any number.
    others: The GPUs of this user's other kernels, and of those that get theirs first.
    """
    if most is None or others + count <= most:
        return ""
    return (
        f"The site's policy allows a user {gpu_count(most)} on this node, "
        f"and your other kernels have {others} or get them first."
    )
