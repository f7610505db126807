"""After a scheduler's SIGTERM comes SIGKILL: the time that is left, counted down in the cells that run.

Slurm's KillWait says how long; where Slurm does not answer, its default is assumed, and of other schedulers nothing is
claimed. This file knows no signals.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from typing import Callable, Optional

DEFAULT = 30.0
"""Seconds: Slurm's KillWait where a site does not set it."""
STEPS = (600.0, 300.0, 120.0, 60.0, 30.0, 20.0, 10.0, 5.0, 2.0)
"""Seconds before the end at which a line appears."""
_ANSWER = 3.0
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+)", re.MULTILINE)


class Countdown:
    """`begin` at a scheduler's SIGTERM; a second one while it counts changes nothing."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._thread: Optional[threading.Thread] = None

    def begin(self) -> None:
        """Returns at once."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._count, args=(time.monotonic(),), daemon=True)
            self._thread.start()

    def _count(self, begun: float) -> None:
        wait = kill_wait()
        if wait is None:
            return
        for step in STEPS:
            pause = begun + wait - step - time.monotonic()
            if pause < 0:
                continue
            time.sleep(pause)
            self._say(f"SIGKILL in about {step:.0f} s.")


def kill_wait() -> Optional[float]:
    """Seconds between Slurm's SIGTERM and its SIGKILL; None outside of Slurm's jobs."""
    if "SLURM_JOB_ID" not in os.environ:
        return None
    command = ["scontrol", "show", "config"]
    try:
        told = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ANSWER
        )
    except (OSError, subprocess.SubprocessError):
        return DEFAULT
    found = _KILL_WAIT.search(told.stdout)
    return max(5.0, float(found[1])) if found else DEFAULT  # less than 5 s Slurm does not wait
