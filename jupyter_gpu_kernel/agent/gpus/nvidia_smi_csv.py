"""What `nvidia-smi` prints, as GPUs: its CSV by field name, its errors with their remedies.

Knows /proc and the password database as well (whose process is that). Must not know how nvidia-smi is run
(smi.py), what "free" means, leases or kernels. What nvidia-smi does not tell is None, never 0.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pwd
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import procfs

# `name` comes last, so that a comma in it does no harm. Older drivers lack the optional ones.
OPTIONAL = ("memory.reserved", "mig.mode.current")
FIELDS = (
    "index",
    "uuid",
    "memory.total",
    "memory.used",
    "utilization.gpu",
    "compute_mode",
    *OPTIONAL,
    "name",
)
NO_DEVICES = "No devices were found"
WITHOUT = "Until then, use another node, or --gpus 0 to run without a GPU."


class GpuProcess(NamedTuple):
    """A compute process on a GPU."""

    pid: int  # 0 where it is not told
    user: str  # "?" where /proc hides the owner
    memory_mib: Optional[int]
    name: str  # "?" where it is not told; printable, no folder
    since: Optional[float] = None  # seconds since the epoch


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
    problem: str = ""  # why it cannot even be asked (a lost GPU)

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"


class SmiError(Exception):
    """No GPUs to speak of. `code`: absent, hang, driver, none, few (fewer than asked), stopped."""

    def __init__(self, code: str, cause: str, remedy: str = "") -> None:
        super().__init__(cause)
        self.code = code
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause}\n{self.remedy}" if self.remedy else self.cause


def query(what: str, fields: Sequence[str], ids: Sequence[str]) -> List[str]:
    """nvidia-smi's arguments: these fields of `what` (gpu, compute-apps), of the GPUs `ids` or all."""
    words = [f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    return [*words, "-i", ",".join(ids)] if ids else words


def checked(code: int, text: str) -> str:
    """`text` if nvidia-smi's exit status and words say it is an answer; SmiError otherwise."""
    if code == 0 and NO_DEVICES not in text:
        return text
    line = clean(next(filter(None, text.split("\n")), "it printed nothing"))
    if NO_DEVICES in text:
        remedy = (
            "In a job, ask the scheduler for GPUs. Else use another node, or --gpus 0 to run without a GPU."
        )
        raise SmiError("none", "nvidia-smi finds no GPU on this node", remedy)
    if "version mismatch" in line:
        remedy = (
            "The driver was updated under way: an administrator must reboot the node or reload the driver."
        )
    else:
        remedy = "Ask the node's administrator to look at the NVIDIA driver (`nvidia-smi` shows the same)."
    raise SmiError("driver", f"nvidia-smi fails with exit status {code}: {line}", f"{remedy} {WITHOUT}")


def parse(gpu_text: str, app_text: str, fields: Sequence[str] = FIELDS) -> List[Gpu]:
    """GPUs from the CSV (noheader, nounits) of `--query-gpu=fields` and `--query-compute-apps`.

    Raises SmiError (driver) for anything but that: a wrong guess here takes somebody's GPU.
    """
    rows = []
    for line in filter(None, map(str.strip, gpu_text.split("\n"))):
        values = [value.strip() for value in line.split(",", len(fields) - 1)]
        row = dict(zip(fields, values))
        if len(values) != len(fields) or not row["index"].isdigit() or not _known(row["uuid"]):
            raise _strange(line)
        rows.append(row)
    processes = _parse_processes(app_text, [row["uuid"] for row in rows])
    return [_gpu(row, processes[row["uuid"]]) for row in rows]


def _gpu(row: Mapping[str, str], processes: Sequence[GpuProcess]) -> Gpu:
    return Gpu(
        index=int(row["index"]),
        uuid=row["uuid"],
        name=clean(row["name"]),
        memory_total_mib=_number(row["memory.total"]),
        memory_used_mib=_number(row["memory.used"]),
        memory_reserved_mib=_number(row.get("memory.reserved", "")),
        utilization=_number(row["utilization.gpu"]),
        compute_mode=_known(row["compute_mode"]),
        mig_mode=_known(row.get("mig.mode.current", "")),
        processes=tuple(processes),
    )


def _parse_processes(text: str, uuids: Sequence[str]) -> Dict[str, List[GpuProcess]]:
    """Rows `uuid, pid, name, memory`. A name may hold commas and line ends: its owner chose it."""
    found: Dict[str, List[GpuProcess]] = {uuid: [] for uuid in uuids}
    any_row = False
    for line in filter(None, map(str.strip, text.split("\n"))):
        uuid, pid, rest = (*line.split(", ", 2), "", "")[:3]
        if uuid in found:
            any_row = True
            name, comma, memory = rest.rpartition(", ")
            found[uuid].append(_process(_number(pid) or 0, name if comma else rest, memory if comma else ""))
        elif not any_row and not line.startswith("No running"):
            raise _strange(line)
    return found


def _process(pid: int, name: str, memory: str) -> GpuProcess:
    short = os.path.basename(_known(name) or "") or "?"
    return GpuProcess(pid, _owner(pid), _number(memory), clean(short), procfs.start_time(pid))


def _owner(pid: int) -> str:
    """The user's name; "?" where the process is hidden (hidepid, another pid namespace) or gone."""
    uid = procfs.uid_of(pid) if pid else None
    return "?" if uid is None else user_name(uid)


@functools.lru_cache(maxsize=None)
def user_name(uid: int) -> str:
    """The name of `uid`, or "uid N" (may wait for the site's directory service)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _known(value: str) -> Optional[str]:
    """None for "", [N/A], [Not Supported], [Insufficient Permissions], [Not Found], ERR! and their like."""
    return None if not value or value.startswith("[") or value in ("N/A", "ERR!") else value


def _number(value: str) -> Optional[int]:
    return int(value) if value.isdigit() and value.isascii() else None


def clean(text: str) -> str:
    """What others chose to be called, made safe for a terminal and a line of text."""
    return "".join(char if char.isprintable() else "?" for char in text.strip())[:120]


def _strange(line: str) -> SmiError:
    return SmiError("driver", f"nvidia-smi printed what we do not understand: {clean(line)}", WITHOUT)
