"""A keeper in a killed one's place: what the first one leaves to it, and how it comes to be.

A keeper writes its will into the kernel's lifeline, a pipe that ends with the keeper. The kernel keeps the will in
memory (it may hold what is nobody else's business), and when the pipe ends, runs it: inside/orphan.py. What the
successor is told it reads from its stdin. What it does as a keeper is not known here.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from ..paths import agent_command
from ..procfs import start_ticks

LOCK_WITHIN = 10.0
"""Seconds for whoever just looks at the folder to let go of its lock."""


class Heritage(NamedTuple):
    """What a successor starts from. `lifeline`: the descriptor it holds for the kernel; `gpus`: UUIDs."""

    kernel: int
    lifeline: int
    gpus: List[str]
    settings: Dict[str, Any]


def will(settings: Dict[str, Any]) -> Dict[str, Any]:
    """How to run a successor of this process, as `in_kernel/orphan.py` does it: {command, environ, cwd, settings}."""
    python = str(settings.get("python") or sys.executable)
    return {
        "command": [*agent_command(python), "succeed", str(settings["id"])],
        "environ": dict(os.environ),
        "cwd": os.getcwd(),
        "settings": settings,
    }


def read_heritage(stream: Any) -> Heritage:
    """The heritage that the kernel wrote, in one line: a process that a cell forked may hold the stream open.

    Its lifeline is not for processes that we start.
    """
    heritage = Heritage(**json.loads(stream.readline()))
    os.set_inheritable(heritage.lifeline, False)
    return heritage


def claim(folder: Path, heritage: Heritage) -> int:
    """The folder's lock, to be kept as long as we live. OSError where there is nothing to take over."""
    lock = os.open(str(folder / "lock"), os.O_RDWR | os.O_CLOEXEC)
    deadline = time.monotonic() + LOCK_WITHIN
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    if not start_ticks(heritage.kernel):
        raise ProcessLookupError("the kernel has ended, too")
    return lock
