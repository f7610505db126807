"""Parses the output of `nvidia-smi`: its CSV to GPUs, its errors to errors with a remedy.

The owners of processes are looked up in /proc and the password database. This module does not know how nvidia-smi is
run, which GPUs count as free, leases, or kernels. What nvidia-smi does not report is None, never 0.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pwd
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import procfs

# `name` comes last, because it may contain a comma. Older drivers lack the optional fields.
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

    pid: int  # 0 if unknown
    user: str  # "?" if unknown
    memory_mib: Optional[int]
    name: str  # of its program, without the folder, printable; "?" if unknown
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
    problem: str = ""  # why nvidia-smi cannot query it (a lost GPU)

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"


class SmiError(Exception):
    """There are no GPUs to use. `code`: absent, hang, driver, none, few (fewer than requested), stopped."""

    def __init__(self, code: str, cause: str, remedy: str = "") -> None:
        super().__init__(cause)
        self.code = code
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause}\n{self.remedy}" if self.remedy else self.cause


def query(what: str, fields: Sequence[str], ids: Sequence[str]) -> List[str]:
    """Return the arguments for a query of these fields of `what` (gpu, compute-apps), for the GPUs `ids` or all."""
    arguments = [f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    return [*arguments, "-i", ",".join(ids)] if ids else arguments


def checked(code: int, text: str) -> str:
    """Return `text` if exit status and text are those of a successful query. Raises SmiError otherwise."""
    if code == 0 and NO_DEVICES not in text:
        return text
    line = clean(next(filter(None, text.split("\n")), "it printed nothing"))
    if NO_DEVICES in text:
        remedy = "In a job, request GPUs from the scheduler. Otherwise use another node, or --gpus 0."
        raise SmiError("none", "nvidia-smi finds no GPU on this node", remedy)
    if "version mismatch" in line:
        remedy = (
            "The driver was updated while in use: an administrator must reboot the node or reload the driver."
        )
    else:
        remedy = (
            "Ask the node's administrator to look at the NVIDIA driver (`nvidia-smi` shows the same error)."
        )
    raise SmiError("driver", f"nvidia-smi fails with exit status {code}: {line}", f"{remedy} {WITHOUT}")


def parse(gpu_text: str, app_text: str, fields: Sequence[str] = FIELDS) -> List[Gpu]:
    """Return the GPUs in the CSV (noheader, nounits) of `--query-gpu=fields` and `--query-compute-apps`.

    Raises SmiError (driver) for anything else: a wrong guess here would take somebody's GPU.
    """
    rows = []
    for line in filter(None, map(str.strip, gpu_text.split("\n"))):
        values = [value.strip() for value in line.split(",", len(fields) - 1)]
        row = dict(zip(fields, values))
        if len(values) != len(fields) or not row["index"].isdigit() or not _known(row["uuid"]):
            raise _unexpected(line)
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
    """Parse rows of `uuid, pid, name, memory`. A name may contain commas and newlines: its owner chose it."""
    found: Dict[str, List[GpuProcess]] = {uuid: [] for uuid in uuids}
    any_row = False
    for line in filter(None, map(str.strip, text.split("\n"))):
        uuid, pid, rest = (*line.split(", ", 2), "", "")[:3]
        if uuid in found:
            any_row = True
            name, comma, memory = rest.rpartition(", ")
            found[uuid].append(_process(_number(pid) or 0, name if comma else rest, memory if comma else ""))
        elif not any_row and not line.startswith("No running"):
            raise _unexpected(line)
    return found


def _process(pid: int, name: str, memory: str) -> GpuProcess:
    short = os.path.basename(_known(name) or "") or "?"
    return GpuProcess(pid, _owner(pid), _number(memory), clean(short), procfs.start_time(pid))


def _owner(pid: int) -> str:
    """The name of its user; "?" if the process is hidden (hidepid, another pid namespace) or has ended."""
    uid = procfs.uid_of(pid) if pid else None
    return "?" if uid is None else user_name(uid)


@functools.lru_cache(maxsize=None)
def user_name(uid: int) -> str:
    """Return the name of `uid`, or "uid N". May wait for the site's directory service."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _known(value: str) -> Optional[str]:
    """`value`; None if it is "", [N/A], [Not Supported], [Insufficient Permissions], [Not Found] or ERR!."""
    return None if not value or value.startswith("[") or value in ("N/A", "ERR!") else value


def _number(value: str) -> Optional[int]:
    return int(value) if value.isdigit() and value.isascii() else None


def clean(text: str) -> str:
    """Return a name that others chose in a form that is safe in a terminal and in one line of text."""
    return "".join(char if char.isprintable() else "?" for char in text.strip())[:120]


def _unexpected(line: str) -> SmiError:
    return SmiError("driver", f"unexpected output of nvidia-smi: {clean(line)}", WITHOUT)
