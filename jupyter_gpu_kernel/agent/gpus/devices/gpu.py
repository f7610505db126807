"""GPUs, their processes, the error that there are none to use, and the variables that say which ones a process may use.

What a driver does not report is None, never 0. ROCm's HIP reads HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES in its
place, after ROCR_VISIBLE_DEVICES, and numbers the GPUs that this has left from 0 on. So the first two count these GPUs,
and only ROCR_VISIBLE_DEVICES names them: torch reads all three.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ....wire.texts import one_line
from ...system import procfs

WITHOUT = "Until then, use another node, or --gpus 0 to run without a GPU."
"""The end of a remedy: what helps until an administrator does."""
NVIDIA, AMD = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
"""The variable that names the GPUs, of either vendor."""
_NUMBERED = re.compile(r"AMD-(\d+)")
_AMD_UUID = re.compile(r"GPU-[0-9a-f]{16}|AMD-\d+")  # NVIDIA's are longer


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


def amd_uuid(unique_id: int, number: int) -> str:
    """Return the UUID of an AMD GPU as ROCm writes it. `number`: its number on the node, if `unique_id` is 0 (none)."""
    return f"GPU-{unique_id:016x}" if unique_id else f"AMD-{number}"


def is_amd(uuid: str) -> bool:
    """Return whether this is the UUID of an AMD GPU."""
    return _AMD_UUID.fullmatch(uuid) is not None


def variables(uuids: Sequence[str], variable: str) -> Dict[str, str]:
    """Return the environment in which exactly these GPUs are visible, in this order. `variable`: NVIDIA or AMD."""
    if variable == NVIDIA:
        return {NVIDIA: ",".join(uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    numbers = ",".join(map(str, range(len(uuids))))
    names = ",".join(_NUMBERED.sub(r"\1", uuid) for uuid in uuids)
    return {AMD: names, "HIP_VISIBLE_DEVICES": numbers, NVIDIA: numbers}


def visible_uuids(environ: Mapping[str, str], variable: str) -> List[str]:
    """Return the GPUs that `variables` has made visible."""
    words = [word for word in environ.get(variable, "").split(",") if word]
    return [f"AMD-{word}" if variable == AMD and word.isdigit() else word for word in words]
