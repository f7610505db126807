"""The keeper's end of a pipe of which its kernel has the other one: so the kernel learns of the keeper's death. On it
go words, one JSON object a line; never so many that a kernel that does not read would hold up its keeper.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Any, Dict

_SET_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)
_SIZE = 1 << 20


class KeeperPipe:
    """`open` for a kernel that is started, `take` for one that runs; `say` a word."""

    def __init__(self) -> None:
        self._fd = -1

    def open(self) -> int:
        """A new one; the kernel's end of it, which the caller closes once the kernel has it."""
        theirs, ours = os.pipe()
        self.take(ours)
        with contextlib.suppress(OSError):  # without: what does not fit is not said
            fcntl.fcntl(ours, _SET_SIZE, _SIZE)
        return theirs

    def take(self, fd: int) -> None:
        """This descriptor is ours from now on."""
        os.set_blocking(fd, False)
        self._fd = fd

    def say(self, word: Dict[str, Any]) -> bool:
        """Whether it was said: a kernel that does not read, or is gone, hears nothing."""
        line = json.dumps(word).encode() + b"\n"
        try:
            return os.write(self._fd, line) == len(line)
        except OSError:
            return False

    def close(self) -> None:
        """The kernel is gone, or shall know that we are."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
