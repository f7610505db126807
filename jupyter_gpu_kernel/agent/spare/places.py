"""Where spare interpreters may be: their files in the agent's folder, and whether there is memory for them.

<root>/spare/<key>.sock   on which it listens
<root>/spare/<key>.lock   held while it offers to fork kernels
<root>/spare/<key>.log    what it has printed
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Optional

from ..exit.node_checks import read_memory
from ..paths import FolderError, make_private
from ..system.file_lock import is_locked, take_lock
from ..system.unix_sockets import listen
from . import packets

MAX_SPARES = 3
"""Spare interpreters of one user on one node."""
_FOLDER = "spare"
_LEAST_SHARE = 0.1
"""The share of the memory of the node, or of the cgroup, below which nothing is kept in it for later."""


class SparePlace:
    """The files of one spare interpreter."""

    def __init__(self, root: Path, key: str) -> None:
        """Makes the folder, mode 0700. Raises OSError, or FolderError if it is another user's."""
        folder = root / _FOLDER
        make_private(folder)
        self.key = key
        self._socket = folder / f"{key}.sock"
        self._lock = folder / f"{key}.lock"
        self.log = folder / f"{key}.log"

    def lock(self) -> Optional[int]:
        """Take the place; return a descriptor that holds it as long as it is open, or None if it is taken."""
        return take_lock(self._lock)

    def is_taken(self) -> bool:
        """Whether a process has the place."""
        return is_locked(self._lock)

    def listens(self) -> bool:
        """Whether there is a socket to connect to."""
        return self._socket.exists()

    def listen(self) -> socket.socket:
        """Return a listening socket, whose file appears when it listens. The place must be locked."""
        return listen(self._socket, 8, packets.TYPE)

    def connect(self, timeout: float) -> Optional[socket.socket]:
        """Return a connection to the process; None if there is none, or it does not accept one at once."""
        sock = socket.socket(socket.AF_UNIX, packets.TYPE)
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.connect(str(self._socket))
            if packets.is_own(sock):
                sock.settimeout(timeout)
                return sock
        sock.close()
        return None

    def is_ours(self, lock: int) -> bool:
        """Whether this descriptor, which `lock` returned, still holds the place: its file may have been removed."""
        try:
            return os.path.samestat(os.fstat(lock), os.stat(str(self._lock)))
        except OSError:
            return False

    def retire(self) -> None:
        """Have the process that has the place fork no more kernels, and end with the last that it has forked. A process
        that does not listen yet ends as soon as it would listen."""
        sock = self.connect(1.0)
        for path in (self._lock, self._socket):
            path.unlink(missing_ok=True)
        if sock is not None:
            with sock, contextlib.suppress(OSError):
                packets.send(sock, {"retire": True})

    def remove_socket(self) -> None:
        """Remove the file, so that nobody connects any more."""
        self._socket.unlink(missing_ok=True)


def spares_running(root: Path) -> int:
    """Return the number of spare interpreters that run."""
    return sum(map(is_locked, (root / _FOLDER).glob("*.lock")))


def retire_all(root: Path) -> None:
    """Have all spare interpreters of this folder retire, and give up their memory."""
    for path in (root / _FOLDER).glob("*.lock"):
        with contextlib.suppress(OSError, FolderError):
            SparePlace(root, path.stem).retire()


def is_short() -> bool:
    """Return whether the node, or our cgroup, is so short of memory that nothing may be kept in it for later."""
    memory = read_memory()
    available, total = memory["node_available_mib"], memory["node_total_mib"]
    used, limit = memory["cgroup_used_mib"], memory["cgroup_limit_mib"]
    node_is_short = available is not None and available < total * _LEAST_SHARE
    return node_is_short or (None not in (used, limit) and limit - used < limit * _LEAST_SHARE)
