"""What a job has printed (slurm-ID.out): read on the job's node when the job has ended, as far as it can be reached
then. The kernel's own output is not in it, but what the set-up lines and the job's process print."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

from ...errors import GpuKernelError
from .. import sanitize
from ..kernel_settings import KernelSettings
from ..slurm.commands import Commands
from ..slurm.dialect import is_job_id
from ..slurm.scheduler import Scheduler
from ..transport.connection import Connection
from ..transport.script import Output
from .job_nodes import JobNodes

WITHIN = 20.0
"""Seconds for the connection to the node, and the file."""
MAX_LINES = 40
_BYTES = 64 * 1024


async def read_output(
    nodes: JobNodes, settings: KernelSettings, job_id: str, host: str, scheduler: Scheduler
) -> str:
    """Return the last lines that a job has printed on its host; "" if there are none, or the host cannot be reached."""
    if not host or not is_job_id(job_id):
        return ""

    def work(connection: Connection) -> Output:
        return Output.of(connection.run("/bin/sh", stdin=script(job_id), timeout=WITHIN))

    try:
        async with nodes.machine(settings, host, scheduler) as node:
            output = await asyncio.wait_for(node.run(None, work), WITHIN)
    except (GpuKernelError, asyncio.TimeoutError):
        return ""
    return sanitize.lines("\n".join(output.lines), MAX_LINES)


def script(job_id: str) -> bytes:
    """Return the script that prints the file: from our folder on the node, or from /tmp if the job's process was not
    started. There it is removed, as nobody else would; so is the folder of a job whose process was killed."""
    name = shlex.quote(f"slurm-{job_id}.out")
    socket = f'"${{file%/*}}/{job_id}/job"'  # the kernel lists it under the name at which it was bound
    return Commands().script(
        "uid=$(id -u) user=$(id -un) node=$(uname -n)",
        "root=jupyter-gpu-kernel-$uid",
        f'set -- "${{JUPYTER_GPU_KERNEL_BASE:-/tmp}}/$root/jobs/"{name} "/tmp/$root/jobs/"{name}',
        f'set -- "$@" "/var/tmp/$root/jobs/"{name} "$HOME/.cache/jupyter-gpu-kernel-$node/jobs/"{name}',
        f'for file in "$@"; do if [ -O {socket} ] && ! grep -qF {socket} /proc/net/unix; then',
        f'    rm -f {socket}; rmdir "${{file%/*}}/{job_id}"',
        "fi; done",
        f'for file in "$@" "/tmp/jupyter-gpu-kernel-$user-"*-{job_id}.out; do',
        '    if [ ! -f "$file" ] || [ -L "$file" ] || [ ! -O "$file" ]; then continue; fi',
        f'    tail -c {_BYTES} "$file"',
        '    case $file in "/tmp/jupyter-gpu-kernel-$user-"*) rm -f "$file" ;; esac',
        "    break",
        "done",
    )


def rows(text: object, time: float | None = None, **more: Any) -> list[dict[str, Any]]:
    """Return the lines of a job's output, as lines of a kernel's story."""
    lines = sanitize.lines(text, MAX_LINES).splitlines()
    return [{"time": time, "event": "output", "text": line, **more} for line in lines]
