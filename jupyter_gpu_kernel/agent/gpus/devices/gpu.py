"""GPUs, their processes, and the error that there are none to use. What a driver does not report is None, never 0."""

from __future__ import annotations

import dataclasses
import os
from typing import NamedTuple, Optional, Tuple

from ....wire.texts import one_line
from ...system import procfs

WITHOUT = "Until then, use another node, or --gpus 0 to run without a GPU."
"""The end of a remedy: what helps until an administrator does."""


class GpuProcess(NamedTuple):
    """A compute process on a GPU."""

    pid: int  # 0 if unknown
    user: str  # "?" if unknown
    memory_mib: Optional[int]
    name: str  # of its program, without the folder, printable; "?" if unknown
    since: Optional[float] = None  # seconds since the epoch
    cpu_seconds: Optional[float] = None  # the CPU time that it has used
    yours: bool = False  # whether its user is the one who asks


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU at one moment."""

    index: int
    uuid: str
    name: str
    memory_total_mib: Optional[int] = None
    memory_used_mib: Optional[int] = None
    memory_reserved_mib: Optional[int] = None
    utilization: Optional[int] = None  # percent
    compute_mode: Optional[str] = None
    mig_mode: Optional[str] = None
    processes: Tuple[GpuProcess, ...] = ()
    problem: str = ""  # why nobody can use it (a lost GPU)
    warning: str = ""  # why others are better (memory errors)
    parent: str = ""  # of a MIG device: the UUID of its GPU

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"

    def is_named(self, word: str) -> bool:
        """Return whether an entry of CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES means this GPU."""
        # nvidia-smi numbers GPUs as CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID; in a device cgroup both start at 0.
        return word == str(self.index) or self.uuid.startswith(word)


class SmiError(Exception):
    """There are no GPUs to use. `code`: absent, hang, driver, none, few (fewer than requested), stopped, system
    (it refuses sockets or files)."""

    def __init__(self, code: str, cause: str, remedy: str = "") -> None:
        super().__init__(cause)
        self.code = code
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause}\n{self.remedy}" if self.remedy else self.cause


def process_on_gpu(pid: int, memory_mib: Optional[int], name: str = "") -> GpuProcess:
    """Return this process with what /proc says about it. `name`: of its program; "" to read it from /proc.

    Its user is unknown if it is hidden (hidepid, another pid namespace), or has ended.
    """
    uid = procfs.uid_of(pid) if pid else None
    user = "?" if uid is None else procfs.user_name(uid)
    shown = one_line(name or (procfs.command_name(pid) if pid else "")) or "?"
    cpu = procfs.cpu_seconds(pid) if pid else None
    return GpuProcess(pid, user, memory_mib, shown, procfs.start_time(pid), cpu, uid == os.getuid())
