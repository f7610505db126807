"""Processes that a test did not start itself: they may end at any moment, also between two questions about them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil


def has_ended(pid: int) -> bool:
    """A zombie has ended, too: its parent reaps it, or the process in its parent's place."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kill(processes: Iterable[psutil.Process]) -> dict[int, list[str]]:
    """Kill those that still exist, and return their commands by process id."""
    killed = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            killed[process.pid] = process.cmdline()
            process.kill()
    return killed
