"""Which GPUs the environment of this process allows, and those that a scheduler has allocated to it.

Kernels use allocated GPUs as they are, without samples or leases. In a job their variables stay as the scheduler set
them, and only their names are read, for what users see.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..system.agent_runtime import AgentRuntime
from .devices.gpu import Gpu, SmiError
from .devices.gpu_reader import device_variable, gpu_reader

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
    def current(cls) -> Allocation:
        """Return the allocation of this process."""
        return cls.of(os.environ, device_variable())

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
    words = Allocation.current().allowed or []
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
