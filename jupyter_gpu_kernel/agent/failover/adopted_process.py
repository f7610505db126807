"""A process that is not our child, with the little of `subprocess.Popen` that a keeper needs.

How such a process ended only its parent is told: here it is known as long as nobody has reaped it, which may be
never. It knows /proc and process descriptors, nothing of kernels.
"""

from __future__ import annotations

import os
from typing import Callable, Optional

from ..exit.processes import handle_of
from ..exit.reason import UNKNOWN
from ..loop import Loop
from ..procfs import start_ticks, zombie_status

_EVERY = 0.5
"""Seconds between two looks, where the system cannot tell (Linux before 5.3, Python before 3.9)."""


class AdoptedProcess:
    """`poll()` as Popen's, UNKNOWN for a status that nobody told; `on_end()` once it is gone."""

    def __init__(self, loop: Loop, pid: int, on_end: Callable[[], None]) -> None:
        self.pid = pid
        self._start = start_ticks(pid)
        self._loop = loop
        self._on_end = on_end
        try:
            self._handle = handle_of(pid)
        except ProcessLookupError:
            self._handle = -1
        if self._handle >= 0:
            loop.watch(self._handle, lambda _: self._over())
        else:
            self._look()

    def poll(self) -> Optional[int]:
        """None while it runs."""
        if self._start and start_ticks(self.pid) == self._start:
            return None
        status = zombie_status(self.pid, self._start)
        return UNKNOWN if status is None else status

    def _over(self) -> None:
        self._loop.forget(self._handle)
        os.close(self._handle)
        self._on_end()

    def _look(self) -> None:
        if self.poll() is None:
            self._loop.later(_EVERY, self._look)
        else:
            self._loop.later(0, self._on_end)
