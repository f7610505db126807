"""The line of one user's kernels that wait for GPUs on this node: first come, first served.

A ticket is a file named by time and count, locked while its keeper lives; a ticket nobody locks is a dead
keeper's, and is thrown away by whoever meets it. Other users' lines are theirs; leases settle what both want.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Optional


class WaitQueue:
    """`join` once, ask `ahead` at every turn, `leave` when served or tired of waiting."""

    def __init__(self, folder: Path, kernel_id: str) -> None:
        self._folder = folder
        self._id = kernel_id
        self._name = ""
        self._fd: Optional[int] = None

    def join(self, count: int) -> None:
        """Takes the last place, for `count` GPUs. Joined already: keeps its place. Where no ticket can be written (a
        full disk) it waits without one: others do not let it go first."""
        if self._fd is not None:
            return
        self._name = "%020d-%d-%s" % (time.time_ns(), count, self._id)
        path = str(self._folder / self._name)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._fd = os.open(path + "~", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(path + "~", path)  # seen only once it is locked
        except OSError:
            self.leave()

    def ahead(self) -> int:
        """How many GPUs those in front of us wait for."""
        if self._fd is None:
            return 0
        try:
            names = sorted(os.listdir(str(self._folder)))
        except OSError:  # a cleaner of /tmp was here
            return 0
        return sum(
            int(name.split("-")[1])
            for name in names
            if name < self._name and not name.endswith("~") and self._alive(name)
        )

    def leave(self) -> None:
        """Gives the place up; again is harmless."""
        if self._fd is None:
            return
        try:
            os.unlink(str(self._folder / self._name))
        except FileNotFoundError:
            pass
        os.close(self._fd)
        self._fd = None

    def _alive(self, name: str) -> bool:
        path = str(self._folder / name)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            return False
        finally:
            os.close(fd)
