"""Reads what the NVIDIA driver of this node is, and which CUDA it serves: `nvidia-smi -q -x`, or /proc without it.

The "CUDA Version" of the driver is the newest one that it serves, not that of an installed toolkit. What is not
reported is "", never a guess.
"""

from __future__ import annotations

import re
import shutil
from typing import Dict, List, NamedTuple

from ....wire.texts import one_line
from ...process_control import ProcessControl

_TIMEOUT = 15.0
_PROC = "/proc/driver/nvidia/version"
_VERSION = re.compile(r"\d+(?:\.\d+){1,3}")
_CAPABILITY = re.compile(r"\d{1,2}\.\d")
_MOST_GPUS = 64


class Driver(NamedTuple):
    """`version`: "535.104.05"; `cuda`: "12.2"; `capabilities`: compute capabilities, such as "8.6", by UUID."""

    version: str
    cuda: str
    capabilities: Dict[str, str]


def read_driver(processes: ProcessControl, proc: str = _PROC) -> Driver:
    """Return what is known of a driver that works. Blocks for some seconds at the most; never raises."""
    report = _run(processes, ["-q", "-x"])
    capabilities = _run(processes, ["--query-gpu=uuid,compute_cap", "--format=csv,noheader,nounits"])
    found = parse_driver(report, capabilities)
    return found if found.version else found._replace(version=loaded_driver(proc).version)


def loaded_driver(proc: str = _PROC) -> Driver:
    """Return the version of the loaded driver, also if nvidia-smi fails or hangs."""
    return Driver(_version_in(proc), "", {})


def parse_driver(report: str, capabilities: str) -> Driver:
    """Return the driver from the outputs of `nvidia-smi -q -x` and of a query for uuid and compute_cap.

    Drivers before 510 do not know compute_cap.
    """
    rows: List[List[str]] = [[part.strip() for part in line.split(",")] for line in capabilities.splitlines()]
    known = {row[0]: row[1] for row in rows if len(row) == 2 and _CAPABILITY.fullmatch(row[1])}
    return Driver(
        _element(report, "driver_version"),
        _element(report, "cuda_version"),
        dict(list(known.items())[:_MOST_GPUS]),
    )


def _element(report: str, name: str) -> str:
    found = re.search(f"<{name}>([^<]{{1,40}})</{name}>", report)
    return found[1].strip() if found and _VERSION.fullmatch(found[1].strip()) else ""


def _version_in(proc: str) -> str:
    """The version in a line such as "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 …"."""
    try:
        with open(proc, encoding="utf-8", errors="replace") as file:
            line = one_line(file.readline(), 500)
    except OSError:
        return ""
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+){1,3})\s", line)
    return found[1] if found else ""


def _run(processes: ProcessControl, words: List[str]) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        return processes.read_output([program, *words], _TIMEOUT)[: 4 << 20].decode("utf-8", "replace")
    except OSError:
        return ""
