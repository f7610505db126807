"""SIMULATED GPUs: an `nvidia-smi` for the practice work node, for machines without an unused GPU.

It answers the CSV queries and `-L` as NVIDIA's program does, for four GPUs, of which another user uses the first. Every
GPU has SIMULATED in its name. The program runs alone, with only the standard library.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = "SIMULATED GPU 24GB"
COUNT = 4
_TOTAL_MIB = 24576
_USED_MIB = 19500  # by another user, on GPU 0
_UNUSED_MIB = 500  # a GPU with less memory in use counts as unused
_INVALID, _NOT_FOUND = 2, 6  # exit statuses
_HELP = "This SIMULATED nvidia-smi supports --query-gpu=, --query-compute-apps= (CSV) and -L."


def spare_real_gpu() -> bool:
    """Whether this machine has a GPU that seems to be unused. Runs nvidia-smi, which may take some seconds."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    command = [program, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    used = [line.strip() for line in done.stdout.splitlines()]
    return done.returncode == 0 and any(word.isdigit() and int(word) < _UNUSED_MIB for word in used)


def install(folder: Path, label: str) -> Path:
    """Write the program `nvidia-smi` into `folder`. `label`: 8 hex digits that begin the UUIDs."""
    program = folder / "nvidia-smi"
    words = shlex.join([sys.executable, "-IS", str(Path(__file__).resolve()), label])
    # A shell script, because a #! line cannot contain every path of a Python.
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o700)
    return program


def main(label: str, words: Sequence[str]) -> int:
    """Run nvidia-smi with the arguments `words`. Return the exit status."""
    asked = dict(word.split("=", 1) for word in words if word.startswith("--query-") and "=" in word)
    chosen = _chosen(label, words[words.index("-i") + 1].split(",")) if "-i" in words else _gpus(label)
    if not chosen:
        print("No devices were found")
        return _NOT_FOUND
    if "-L" in words:
        for gpu in chosen:
            print(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
        return 0
    if "--query-gpu" in asked:
        return _print(chosen, asked["--query-gpu"])
    if "--query-compute-apps" in asked:
        return _print([_app(gpu) for gpu in chosen if gpu["index"] == "0"], asked["--query-compute-apps"])
    print(_HELP)
    return 0 if not words else _INVALID


def _print(rows: Sequence[dict[str, str]], fields: str) -> int:
    names = fields.split(",")
    unknown = [name for name in names if rows and name not in rows[0]]
    if unknown:
        print(f'Field "{unknown[0]}" is not a valid field to query.')
        return _INVALID
    for row in rows:
        print(", ".join(row[name] for name in names))
    return 0


def _gpus(label: str) -> list[dict[str, str]]:
    return [_gpu(label, index) for index in range(COUNT)]


def _chosen(label: str, ids: Sequence[str]) -> list[dict[str, str]]:
    return [gpu for gpu in _gpus(label) if gpu["index"] in ids or gpu["uuid"] in ids]


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
        "mig.mode.current": "[N/A]",
        "retired_pages.pending": "[N/A]",
        "ecc.errors.uncorrected.volatile.total": "[N/A]",
        "remapped_rows.pending": "[N/A]",
        "remapped_rows.failure": "[N/A]",
        "gpu_recovery_action": "None",
        "driver_version": "SIMULATED",
    }


def _app(gpu: dict[str, str]) -> dict[str, str]:
    return {
        "gpu_uuid": gpu["uuid"],
        "pid": "[N/A]",  # the process of another user on a node that hides process owners
        "process_name": "train.py",
        "used_memory": str(_USED_MIB),
    }


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8") if hasattr(sys.stdout, "reconfigure") else None
    status = main(sys.argv[1], sys.argv[2:])
    sys.stdout.flush()
    os._exit(status)
