"""What a job has printed (slurm-ID.out): read on the job's node after the job's end, if the node can be reached then.
The file has what the set-up lines and the job's process print, and not the kernel's own output."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import GpuKernelError
from .. import sanitize
from ..kernel_settings import KernelSettings
from ..slurm.commands import Commands
from ..slurm.dialect import is_job_id
from ..transport.connection import Connection
from ..transport.script import Output, source
from .job_nodes import JobNodes

WITHIN = 20.0
"""Seconds for the connection to the node, and the file."""
MAX_LINES = 40


async def read_output(nodes: JobNodes, settings: KernelSettings, job_id: str, host: str) -> str:
    """Return the last lines that a job has printed on its host; "" if there are none, or the host cannot be reached."""
    if not host or not is_job_id(job_id):
        return ""

    def work(connection: Connection) -> Output:
        return Output.of(connection.run("/bin/sh", stdin=script(job_id), timeout=WITHIN))

    try:
        async with nodes.machine(settings, host) as node:
            output = await asyncio.wait_for(node.run(None, work), WITHIN)
    except (GpuKernelError, asyncio.TimeoutError):
        return ""
    return sanitize.lines("\n".join(output.lines), MAX_LINES)


def script(job_id: str) -> bytes:
    """Return the script that prints the file, and removes what the job has left on the node."""
    return Commands().script(f"job={job_id}", source("hub/jobs/job_output.sh"))


def rows(text: object, time: float | None = None, **more: Any) -> list[dict[str, Any]]:
    """Return the lines of a job's output, as lines of a kernel's story."""
    lines = sanitize.lines(text, MAX_LINES).splitlines()
    return [{"time": time, "event": "output", "text": line, **more} for line in lines]
