"""Counts down, in the running cells, the time between a scheduler's SIGTERM and its SIGKILL.

Slurm's setting KillWait is that time. If Slurm does not answer, its default is assumed; for other schedulers there is
no countdown. This module knows no signals.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from typing import Callable, Optional

DEFAULT = 30.0
"""Slurm's default KillWait, in seconds."""
STEPS = (600.0, 300.0, 120.0, 60.0, 30.0, 20.0, 10.0, 5.0, 2.0)
"""The remaining seconds at which a line is written."""
_TIMEOUT = 3.0
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+)", re.MULTILINE)


class Countdown:
    """A countdown; starting it again while it runs changes nothing."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Start the countdown in a thread."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._count, args=(time.monotonic(),), daemon=True)
            self._thread.start()

    def _count(self, start: float) -> None:
        wait = kill_wait()
        if wait is None:
            return
        for step in STEPS:
            pause = start + wait - step - time.monotonic()
            if pause < 0:
                continue
            time.sleep(pause)
            self._say(f"SIGKILL in about {step:.0f} s.")


def kill_wait() -> Optional[float]:
    """Return the seconds between Slurm's SIGTERM and its SIGKILL; None outside of a Slurm job."""
    if "SLURM_JOB_ID" not in os.environ:
        return None
    command = ["scontrol", "show", "config"]
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT
        )
    except (OSError, subprocess.SubprocessError):
        return DEFAULT
    found = _KILL_WAIT.search(result.stdout)
    return max(5.0, float(found[1])) if found else DEFAULT  # Slurm waits at least 5 s
