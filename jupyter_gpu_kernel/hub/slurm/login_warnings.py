"""What `add --slurm` warns of: settings that fail on the login node already, and so may fail in a job."""

from __future__ import annotations

import re
import shlex

from ..kernel_settings import KernelSettings
from ..rpc import Call
from .scheduler import Scheduler

_NO_FOLDER, _NO_REVISION = 3, 4  # exit statuses of the check
_HOME = re.compile(r"~[\w.-]*(/|$)")
"""What a shell replaces by a home folder, if it is not quoted."""


async def login_warnings(
    scheduler: Scheduler, settings: KernelSettings, setup_problem: str, call: Call
) -> list[str]:
    """Return one sentence for each setting that fails on the login node. `setup_problem`: how the set-up lines failed
    there, or ""."""
    problems = [f"the set-up lines (--setup) fail: {setup_problem}"] if setup_problem else []
    if settings.cwd or settings.code:
        status = (await scheduler.run(_check(settings.cwd or "~", settings.code), call)).status
        if status == _NO_FOLDER:
            problems.append(f"the folder {settings.cwd} (--cwd) cannot be entered")
        elif status == _NO_REVISION:
            folder = settings.cwd or "the home folder"
            problems.append(f"git finds no revision {settings.code} (--code) in {folder}")
    place = f"(checked on {scheduler.name}; the job's nodes may differ)"
    return [f"Warning: {problem}; kernels may fail for this reason {place}." for problem in problems]


def _check(folder: str, revision: str) -> str:
    """Return a line of sh that looks for the folder, and for the revision if the login node has git."""
    home = match[0] if (match := _HOME.match(folder)) else ""
    rest = folder[len(home) :]
    steps = [f"cd -- {home}{shlex.quote(rest) if rest else ''} || exit {_NO_FOLDER}"]
    if revision:
        commit = shlex.quote(revision + "^{commit}")
        steps.append("command -v git || exit 0")
        steps.append(f"git rev-parse --verify {commit} || exit {_NO_REVISION}")
    return f"({'; '.join(steps)}) >/dev/null 2>&1"
