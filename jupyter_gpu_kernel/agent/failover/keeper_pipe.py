"""The pipe from a keeper to its kernel, which ends when the keeper dies.

The keeper writes into it what the kernel needs to start another keeper; the kernel's end is in
`in_kernel/keeper_watch.py`. The settings may hold secrets: they pass from memory to memory, and are in no file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Any, Dict, Sequence

from ..kernel_settings import KernelSettings
from ..paths import agent_command

_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)
_PIPE_SIZE = 1 << 20


class KeeperPipe:
    """The keeper's end, for JSON objects in one line each. A write never blocks on a kernel that does not read."""

    def __init__(self) -> None:
        self._fd = -1

    def open(self) -> int:
        """Make a new pipe; return the kernel's end, which the caller closes once the kernel has it."""
        read_fd, self._fd = os.pipe()
        os.set_blocking(self._fd, False)
        with contextlib.suppress(OSError):  # then what does not fit is not written
            fcntl.fcntl(self._fd, _F_SETPIPE_SZ, _PIPE_SIZE)
        return read_fd

    def write(self, message: Dict[str, Any]) -> bool:
        """Write a message. Return whether it was written as a whole."""
        line = json.dumps(message).encode() + b"\n"
        try:
            return os.write(self._fd, line) == len(line)
        except OSError:
            return False

    def write_successor(self, settings: KernelSettings, ended: Sequence[str]) -> bool:
        """Tell the kernel how to start another keeper with these settings. `ended`: see `RunningKernel`."""
        command = [*agent_command(settings.python), "succeed", settings.id]
        where = {"environ": dict(os.environ), "cwd": os.getcwd()}
        return self.write({"command": command, **where, "settings": settings.to_json(), "ended": ended})

    def close(self) -> None:
        """Close the pipe: the kernel has ended, or is to notice that this keeper has."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
