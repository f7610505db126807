"""The batch script of a kernel's job. Pure.

Slurm copies it to the first node of the job. It needs no file there and no shared file system, as it brings the agent
along; and it contains no secret, as every administrator can read it: a kernel's variables come later, over the socket
of `agent job`, which the script becomes.
"""

from __future__ import annotations

import base64
import math
import re

from ...errors import SettingsError
from ..kernel_settings import KernelSettings
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


def batch_script(settings: KernelSettings, kernel_id: str, package: Package) -> bytes:
    """Return the script. It runs the settings' set-up lines: the kernel inherits what they set, and they are not run
    again for it."""
    python = settings.python
    if not python.startswith("/"):
        raise SettingsError(
            "the kernelspec names no Python",
            remedy="Run “jupyter gpu-kernel add … --slurm --replace”, or give --python.",
        )
    parts = [
        "#!/bin/bash -l",
        *(f"#SBATCH {option}" for option in directives(settings, kernel_id)),
        "",
        *_OUTPUT,
        *settings.setup,
        *_agent(package.packed("zlib")),
    ]
    return "\n".join(parts).encode() + b"\n" + script_head(package, python, command="job") + package.install


def directives(settings: KernelSettings, kernel_id: str) -> list[str]:
    """Return sbatch's options for these settings."""
    if not _KERNEL_ID.fullmatch(kernel_id):
        raise ValueError("a kernel's id was expected")
    warn = settings.warn_before
    whole = times.seconds(settings.time) or math.inf
    seconds = int(min(times.WARN_BEFORE, whole / 3) if warn is None else warn)
    options = [
        f"--job-name={JOB_NAME}{kernel_id}",
        "--no-requeue",
        "--output=/dev/null",
    ]
    if seconds:
        options.append(f"--signal=B:{settings.warn_signal}@{seconds}")
    if settings.gpus:
        options.append(f"--gres={gres(settings.gpus, settings.gpu_type)}")
    options.append(f"--nodes={settings.nodes}")
    if settings.nodes > 1:
        options.append("--ntasks-per-node=1")
    for option, value in (
        ("partition", settings.partition),
        ("time", settings.time),
        ("cpus-per-task", settings.cpus),
        ("mem", settings.mem),
        ("account", settings.account),
        ("qos", settings.qos),
    ):
        if value:
            options.append(f"--{option}={value}")
    return [*options, *settings.sbatch]  # of two equal options the last one counts


def gres(gpus: int, kind: str) -> str:
    """Return the GPUs of each node as a generic resource."""
    return f"gpu:{kind}:{gpus}" if kind else f"gpu:{gpus}"


def _agent(data: bytes) -> list[str]:
    """Return the lines that put the agent into the variable that install.sh reads."""
    text = base64.b64encode(data).decode()
    return ["agent='", *(text[at : at + _LINE] for at in range(0, len(text), _LINE)), "'"]
