"""The CSV queries of `nvidia-smi`: their fields, and their output, which becomes GPUs or an error with a remedy.

What nvidia-smi does not report is None, never 0. The owners of processes are looked up in /proc and the password
database.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, Mapping, Optional, Sequence

from ....wire.texts import one_line, whole_number
from .gpu import WITHOUT, Gpu, GpuProcess, SmiError, process_on_gpu

NO_DEVICES = "No devices were found"
INVALID_FIELD = re.compile(r'Field "(.+?)" is not a valid field to query')
OPTIONAL = {
    "retired_pages.pending": 0,
    "ecc.errors.uncorrected.volatile.total": 0,
    "mig.mode.current": 450,
    "remapped_rows.pending": 450,
    "remapped_rows.failure": 450,
    "memory.reserved": 510,
    "gpu_recovery_action": 565,
}
"""The fields that some drivers lack, each with the first driver that may have it."""
# `name` comes last, because it may contain a comma.
_ALWAYS = ("index", "uuid", "memory.total", "memory.used", "utilization.gpu", "compute_mode")
FIELDS = (*_ALWAYS, *OPTIONAL, "name")
_BROKEN = {
    "[GPU is lost]": "the driver has lost it: only a reboot brings it back",
    "[GPU requires reset]": "it must be reset by an administrator (GPU requires reset)",
}
_VERSION = re.compile(r"\s(\d{3,})\.\d+")


def fields_of(version: str) -> List[str]:
    """Return the fields to query. `version`: the text of /proc/driver/nvidia/version; "" if unknown."""
    match = _VERSION.search(version)
    return [field for field in FIELDS if match is None or OPTIONAL.get(field, 0) <= int(match[1])]


def query(what: str, fields: Sequence[str], ids: Sequence[str]) -> List[str]:
    """Return the arguments for a query of these fields of `what` (gpu, compute-apps), for the GPUs `ids` or all."""
    arguments = [f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    return [*arguments, "-i", ",".join(ids)] if ids else arguments


def app_query(ids: Sequence[str]) -> List[str]:
    """Return the arguments for a query of the compute processes of the GPUs `ids`, or of all."""
    return query("compute-apps", ("gpu_uuid", "pid", "process_name", "used_memory"), ids)


def checked(code: int, text: str) -> str:
    """Return `text` if exit status and text are those of a successful query. Raises SmiError otherwise."""
    if code == 0 and NO_DEVICES not in text:
        return text
    line = one_line(next(filter(None, text.split("\n")), "it printed nothing"), 200)
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
        if len(values) != len(fields) or whole_number(row["index"]) is None or not row["uuid"]:
            raise _unexpected(line)
        rows.append(row)
    processes = _parse_processes(app_text, [row["uuid"] for row in rows])
    return [_gpu(row, processes[row["uuid"]]) for row in rows]


def _gpu(row: Mapping[str, str], processes: Sequence[GpuProcess]) -> Gpu:
    return Gpu(
        index=int(row["index"]),
        uuid=_known(row["uuid"]) or "",
        name=one_line(_known(row["name"]) or "?"),
        memory_total_mib=whole_number(row["memory.total"]),
        memory_used_mib=whole_number(row["memory.used"]),
        memory_reserved_mib=whole_number(row.get("memory.reserved", "")),
        utilization=whole_number(row["utilization.gpu"]),
        compute_mode=_known(row["compute_mode"]),
        mig_mode=_known(row.get("mig.mode.current", "")),
        processes=tuple(processes),
        problem=_problem(row),
        warning=_warning(row),
    )


def _problem(row: Mapping[str, str]) -> str:
    """Why nobody can use the GPU. One that has to be reset may show 0 MiB in use, and no processes."""
    for value in row.values():
        if value in _BROKEN:
            return _BROKEN[value]
    if _known(row["uuid"]) is None:
        return f"nvidia-smi cannot query it: {one_line(row['uuid'])}"
    if row.get("retired_pages.pending") == "Yes":
        return "a part of its memory is broken: it can be used after a reboot (retired pages are pending)"
    if row.get("remapped_rows.failure") == "Yes":
        return "a part of its memory is broken and cannot be replaced (row remapping failed)"
    action = _known(row.get("gpu_recovery_action", "")) or "None"
    return (
        "" if action == "None" else f"an administrator must recover it (nvidia-smi says: {one_line(action)})"
    )


def _warning(row: Mapping[str, str]) -> str:
    errors = whole_number(row.get("ecc.errors.uncorrected.volatile.total", "")) or 0
    if errors:
        return f"{errors} uncorrected memory error{'s' if errors > 1 else ''} since the driver was loaded"
    return "it is to be reset (row remapping is pending)" if row.get("remapped_rows.pending") == "Yes" else ""


def _parse_processes(text: str, uuids: Sequence[str]) -> Dict[str, List[GpuProcess]]:
    """Parse rows of `uuid, pid, name, memory`. A name may contain commas and newlines: its owner chose it."""
    found: Dict[str, List[GpuProcess]] = {uuid: [] for uuid in uuids}
    any_row = False
    for line in filter(None, map(str.strip, text.split("\n"))):
        uuid, pid, rest = (*line.split(", ", 2), "", "")[:3]
        if uuid in found:
            any_row = True
            name, comma, memory = rest.rpartition(", ")
            found[uuid].append(
                _process(whole_number(pid) or 0, name if comma else rest, memory if comma else "")
            )
        elif uuid.startswith("MIG-"):  # these processes are read from the report of the MIG devices
            any_row = True
        elif not any_row and uuid not in _BROKEN and not line.startswith("No running"):
            raise _unexpected(line)
    return found


def _process(pid: int, name: str, memory: str) -> GpuProcess:
    return process_on_gpu(pid, whole_number(memory), os.path.basename(_known(name) or "") or "?")


def _known(value: str) -> Optional[str]:
    """`value`; None if it is "", [N/A], [Not Supported], [Insufficient Permissions], [Not Found] or ERR!."""
    return None if not value or value.startswith("[") or value in ("N/A", "ERR!") else value


def _unexpected(line: str) -> SmiError:
    return SmiError("driver", f"unexpected output of nvidia-smi: {one_line(line)}", WITHOUT)
