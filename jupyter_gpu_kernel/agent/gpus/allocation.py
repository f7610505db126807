"""Which GPUs the environment of this process allows, and those that a scheduler has allocated to it.

Kernels use allocated GPUs as they are, without samples or leases. In a job their variables stay as the scheduler set
them, and only their names are read, for what users see.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .devices.gpu import Gpu, SmiError
from .devices.gpu_reader import GpuReader, device_variable

if TYPE_CHECKING:  # attach, which reads what is allowed, runs without pyzmq
    from ..kernel_context import KernelContext

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


class GivenGpus:
    """`read()` calls `on_named(uuids)` and then `on_read()`, once. Outside of a job it does nothing."""

    def __init__(
        self,
        context: KernelContext,
        on_named: Callable[[List[str]], None],
        on_read: Callable[[], None],
    ) -> None:
        self.in_job = bool(context.settings.now.job)
        self.names: Dict[str, str] = {}
        """"GPU 0 (NVIDIA A100)", by UUID."""
        self._loop, self._processes = context.loop, context.processes
        self._on_named = on_named
        self._on_read = on_read
        self._begun = False

    def read(self) -> None:
        """Read the names in a thread, unless that was done."""
        if not self.in_job or self._begun:
            return
        self._begun = True
        words = Allocation.current().allowed or []
        if words:
            self._loop.run_in_thread(lambda: self._read(words), self._done)

    def _read(self, words: List[str]) -> Dict[str, str]:
        """The names of these GPUs by UUID; a GPU that cannot be read has the word that Slurm gave."""
        try:
            gpus = GpuReader(self._loop.runtime, self._processes).read()
        except SmiError:
            gpus = []
        return dict(_named(word, gpus) for word in words)

    def _done(self, names: Dict[str, str]) -> None:
        self.names = names
        self._on_named(list(names))
        self._on_read()


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
