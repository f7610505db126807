"""The batch script of a kernel's job. Pure.

Slurm copies it to the first node of the job. It needs no file there and no shared file system, as it brings the agent
along; and it contains no secret, as every administrator can read it: a kernel's variables come later, over the socket
of `agent job`, which the script becomes.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any

from ...errors import SettingsError
from ...wire import DEFAULT_GPUS
from ..node.install.agent_file import Package
from ..node.install.deploy import script_head
from . import times
from .commands import JOB_NAME

_OUTPUT = (
    # Slurm's own file would have to lie in a folder that is there already, such as /tmp; and as everybody can ask Slurm
    # for its name, another user of the node could make it first.
    'if out=$(umask 077; mktemp "/tmp/jupyter-gpu-kernel-$(id -un)-XXXXXXXX-$SLURM_JOB_ID.out"); then',
    '    exec >"$out" 2>&1',
    "fi",
    "unset out",
)
"""Opens the file for the job's output. `agent job` moves it into our folder, which is not known yet."""
_KERNEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LINE = 76


def batch_script(settings: dict[str, Any], kernel_id: str, package: Package) -> bytes:
    """Return the script. It runs the settings' set-up lines: the kernel inherits what they set, and they are not run
    again for it."""
    python = str(settings.get("python") or "")
    if not python.startswith("/"):
        raise SettingsError(
            "the kernelspec names no Python",
            remedy="Run “jupyter gpu-kernel add … --slurm --replace”, or give --python.",
        )
    setup = [str(line) for line in settings.get("setup") or ()]
    parts = [
        "#!/bin/bash -l",
        *(f"#SBATCH {option}" for option in directives(settings, kernel_id)),
        "",
        *_OUTPUT,
        *setup,
        *_agent(package.packed("zlib")),
    ]
    return "\n".join(parts).encode() + b"\n" + script_head(package, python, command="job") + package.install


def directives(settings: dict[str, Any], kernel_id: str) -> list[str]:
    """Return sbatch's options for these settings."""
    if not _KERNEL_ID.fullmatch(kernel_id):
        raise ValueError("a kernel's id was expected")
    warn = settings.get("warn_before")
    whole = times.seconds(str(settings.get("time") or "")) or math.inf
    seconds = int(min(times.WARN_BEFORE, whole / 3) if warn is None else warn)
    nodes = int(settings.get("nodes") or 1)
    options = [
        f"--job-name={JOB_NAME}{kernel_id}",
        "--no-requeue",
        "--output=/dev/null",
    ]
    if seconds:
        options.append(f"--signal=B:{settings.get('warn_signal') or 'USR1'}@{seconds}")
    if gpus := int(settings.get("gpus", DEFAULT_GPUS)):
        options.append(f"--gres={gres(gpus, str(settings.get('gpu_type') or ''))}")
    if nodes > 1:
        options += [f"--nodes={nodes}", "--ntasks-per-node=1"]
    else:
        options.append("--nodes=1")
    for option, key in (
        ("partition", "partition"),
        ("time", "time"),
        ("cpus-per-task", "cpus"),
        ("mem", "mem"),
        ("account", "account"),
        ("qos", "qos"),
    ):
        if value := settings.get(key):
            options.append(f"--{option}={value}")
    return options + [
        str(line) for line in settings.get("sbatch") or ()
    ]  # of two equal options the last one counts


def gres(gpus: int, kind: str) -> str:
    """Return the GPUs of each node as a generic resource."""
    return f"gpu:{kind}:{gpus}" if kind else f"gpu:{gpus}"


def _agent(data: bytes) -> list[str]:
    """Return the lines that put the agent into the variable that install.sh reads."""
    text = base64.b64encode(data).decode()
    return ["agent='", *(text[at : at + _LINE] for at in range(0, len(text), _LINE)), "'"]
