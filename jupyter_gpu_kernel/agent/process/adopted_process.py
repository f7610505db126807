"""A process that is not our child: only its parent learns its exit status. We can read the status only while the
process is a zombie, so we may never learn it. A spare interpreter, the parent of the kernels that it has forked, leaves
them zombies until the connection to their keeper is closed."""

from __future__ import annotations

import os
import socket
from typing import Callable, Optional

from ..exit.reason import UNKNOWN
from ..system.loop import Loop
from ..system.process_control import open_pidfd
from ..system.procfs import start_ticks, zombie_status

_POLL_INTERVAL = 0.5
"""Seconds, where there are no process descriptors (Linux before 5.3, Python before 3.9)."""


class AdoptedProcess:
    """`on_end()` is called when the process has ended; `poll()` returns UNKNOWN if its exit status is unknown."""

    def __init__(
        self, loop: Loop, pid: int, on_end: Callable[[], None], parent: Optional[socket.socket] = None
    ) -> None:
        """`parent`: the connection to the spare interpreter that has forked the process."""
        self.pid = pid
        self.start = start_ticks(pid)
        """When it started, in clock ticks since the boot; 0 if it has ended."""
        self._loop = loop
        self._on_end = on_end
        self._parent = parent
        self._status: Optional[int] = None
        try:
            self._handle = open_pidfd(pid)
        except ProcessLookupError:
            self._handle = -1
        if self._handle >= 0:
            loop.watch(self._handle, lambda _: self._ended())
        else:
            loop.later(0, self._check)

    def poll(self) -> Optional[int]:
        """Return None while the process runs, then its return code."""
        if self._status is None and not (self.start and start_ticks(self.pid) == self.start):
            status = zombie_status(self.pid, self.start)
            self._status = UNKNOWN if status is None else status
            if self._parent is not None:
                self._parent.close()
        return self._status

    def _ended(self) -> None:
        self._loop.forget(self._handle)
        os.close(self._handle)
        self._on_end()

    def _check(self) -> None:
        if self.poll() is None:
            self._loop.later(_POLL_INTERVAL, self._check)
        else:
            self._loop.later(0, self._on_end)
