"""SIMULATED GPUs: an `nvidia-smi` for the practice work node, for machines without an unused GPU.

It answers the CSV queries and `-L` as NVIDIA's program does, for four GPUs, of which another user uses the first. Every
GPU has SIMULATED in its name. The program runs alone, with only the standard library.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = "SIMULATED GPU 24GB"
COUNT = 4
_TOTAL_MIB = 24576
_USED_MIB = 19500  # by another user, on GPU 0
_UNUSED_MIB = 500  # a GPU with less memory in use counts as unused
_INVALID = 2  # exit status
_UNKNOWN = "[N/A]"
_HELP = "This SIMULATED nvidia-smi supports --query-gpu=, --query-compute-apps= (CSV) and -L."


def spare_real_gpu() -> bool:
    """Whether this machine has a GPU that seems to be unused. Runs nvidia-smi, which may take some seconds."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    return any(used.isdigit() and int(used) < _UNUSED_MIB for used in listed.split())


def install(folder: Path, label: str) -> None:
    """Write the program `nvidia-smi` into `folder`. `label`: 8 hex digits that begin the UUIDs."""
    program = folder / "nvidia-smi"
    words = shlex.join([sys.executable, "-IS", str(Path(__file__).resolve()), label])
    # A shell script, because a #! line cannot contain every path of a Python.
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o700)


def main(label: str, words: Sequence[str]) -> int:
    """Run nvidia-smi with the arguments `words`. Return the exit status."""
    gpus = [_gpu(label, index) for index in range(COUNT)]
    asked = dict(word.split("=", 1) for word in words if word.startswith("--query-") and "=" in word)
    if "-L" in words:
        for gpu in gpus:
            print(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
    elif "--query-gpu" in asked:
        _print(gpus, asked["--query-gpu"])
    elif "--query-compute-apps" in asked:
        # The process has no pid, as on a node that hides the owners of processes.
        app = {"gpu_uuid": gpus[0]["uuid"], "process_name": "train.py", "used_memory": str(_USED_MIB)}
        _print([app], asked["--query-compute-apps"])
    else:
        print(_HELP)
        return _INVALID
    return 0


def _print(rows: Sequence[dict[str, str]], fields: str) -> None:
    for row in rows:
        print(", ".join(row.get(name, _UNKNOWN) for name in fields.split(",")))


def _gpu(label: str, index: int) -> dict[str, str]:
    busy = index == 0
    return {
        "index": str(index),
        "uuid": f"GPU-{label}-0000-4000-8000-{index:012d}",
        "name": NAME,
        "memory.total": str(_TOTAL_MIB),
        "memory.used": str(_USED_MIB + 1 if busy else 1),
        "memory.reserved": "300",
        "utilization.gpu": "97" if busy else "0",
        "compute_mode": "Default",
        "gpu_recovery_action": "None",
        "driver_version": "SIMULATED",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
