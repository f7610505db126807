"""The queue of one user's kernels that wait for GPUs on this node: first come, first served.

A ticket is a file named by its time and the number of GPUs, locked while its keeper lives. A ticket without a lock
belongs to a dead keeper, and whoever finds it removes it. Each user has an own queue; between users the leases decide.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Optional


class WaitQueue:
    """A kernel's place in the queue: `join` once, look at `gpus_ahead` before each attempt, then `leave`."""

    def __init__(self, folder: Path, kernel_id: str) -> None:
        self._folder = folder
        self._kernel_id = kernel_id
        self._ticket = ""
        self._lock: Optional[int] = None

    def join(self, count: int) -> None:
        """Wait for `count` GPUs, behind all others; a kernel that waits already keeps its place.

        Where no ticket can be written (the disk is full), the kernel waits without one: others do not wait for it.
        """
        if self._lock is not None:
            return
        self._ticket = "%020d-%d-%s" % (time.time_ns(), count, self._kernel_id)
        path = str(self._folder / self._ticket)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(path + "~", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(path + "~", path)  # others see it only once it is locked
        except OSError:
            self.leave()

    def gpus_ahead(self) -> int:
        """How many GPUs the kernels before this one wait for."""
        if self._lock is None:
            return 0
        try:
            names = sorted(os.listdir(str(self._folder)))
        except OSError:  # removed by a cleaner of temporary files
            return 0
        return sum(
            int(name.split("-")[1])
            for name in names
            if name < self._ticket and not name.endswith("~") and self._is_valid(name)
        )

    def leave(self) -> None:
        """Leave the queue; harmless when repeated."""
        if self._lock is None:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(str(self._folder / self._ticket))
        os.close(self._lock)
        self._lock = None

    def _is_valid(self, ticket: str) -> bool:
        """Whether the keeper of this ticket lives; otherwise the ticket is removed."""
        path = str(self._folder / ticket)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return False
        finally:
            os.close(lock)
