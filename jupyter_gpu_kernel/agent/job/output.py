"""The file with a job's output: the batch script opens it in /tmp, and the job's process moves it into our folder,
where it is kept for some days."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Dict

from ...wire.texts import one_line
from ..paths import Root, read_tail

KEPT = 7 * 86400.0
"""Seconds for which the output of a job that has ended is kept."""
_TAIL = 64 * 1024
"""Bytes of the output that are sent."""
_STDOUT = "/proc/self/fd/1"


def adopt_output(root: Root, job_id: str, now: float) -> None:
    """Move the file with this process's output into our folder, and remove the files of old jobs."""
    for old in root.job_outputs():
        with contextlib.suppress(OSError):
            if now - old.stat().st_mtime > KEPT:
                old.unlink()
    with contextlib.suppress(OSError):  # on another file system, or no file: it stays where it is
        path = os.readlink(_STDOUT)
        ours = re.fullmatch(r"/tmp/jupyter-gpu-kernel-[^/]+-" + re.escape(job_id) + r"\.out", path)
        if ours and os.path.samestat(os.lstat(path), os.fstat(1)):
            os.rename(path, str(root.job_output(job_id)))


def own_output() -> Dict[str, str]:
    """Return {path, text}: the file with this process's output, and its end; both "" if it is no file."""
    path = os.readlink(_STDOUT)
    if not os.path.isfile(path):
        return {"path": "", "text": ""}
    return {"path": one_line(path, 1000), "text": read_tail(Path(path), _TAIL)}
