"""Asks the NVIDIA driver of this node for its version, and for the newest CUDA that it supports (`nvidia-smi -q -x`).

That CUDA is not the version of an installed toolkit. What is not reported is "", never a guess.
"""

from __future__ import annotations

import re
import shutil
from typing import Tuple

from ....wire.runtime import Runtime
from ...process_control import Limit, ProcessControl, run_programs

_TIMEOUT = 15.0
_MAX_REPORT = 4 << 20


def read_driver(runtime: Runtime, processes: ProcessControl) -> Tuple[str, str]:
    """Return the driver's version and its CUDA: ("535.104.05", "12.2"). Blocks for some seconds at the most."""
    program = shutil.which("nvidia-smi")
    try:
        limit = Limit(runtime.monotonic() + _TIMEOUT, most=_MAX_REPORT)
        report = (
            run_programs(runtime, processes, [[program, "-q", "-x"]], limit)[0].output if program else b""
        )
    except OSError:
        return "", ""
    text = report.decode("utf-8", "replace")
    return _version(text, "driver_version"), _version(text, "cuda_version")


def _version(report: str, name: str) -> str:
    found = re.search(rf"<{name}>\s*(\d+(?:\.\d+){{1,3}})\s*</{name}>", report)
    return found[1] if found else ""
