"""Changes what the system shows of this process in /proc: its command line, and variables of its environment.

A forked process keeps what its parent was started with. Kernels are found by these variables, and users know a kernel
by its command line. Both are in the memory of the process, and room for them is reserved when it is started.
"""

from __future__ import annotations

import ctypes
import os
from typing import Dict, NamedTuple, Sequence

from ..system import procfs

RESERVED = "JUPYTER_GPU_KERNEL_RESERVED"
"""The variable in whose place the variables of the kernel are written."""
_SIZE = 2048
_FIRST_FIELD = 45  # of /proc/PID/stat, behind the name: where the arguments begin


def reserve(spare: Sequence[str], kernel: Sequence[str]) -> str:
    """The last argument of the command `spare`, by which it is as long as the command `kernel`."""
    return "-" * max(1, len(os.fsencode("\0".join(kernel))) - len(os.fsencode("\0".join(spare))) - 1)


def reserved_variable() -> Dict[str, str]:
    """What the environment of a process must hold that is to show other variables."""
    return {RESERVED: "-" * _SIZE}


class ProcTitle(NamedTuple):
    """Where the memory of this process has its arguments, and the reserved variable."""

    arguments: int
    arguments_size: int
    variables: int
    variables_size: int

    @classmethod
    def find(cls) -> ProcTitle:
        """Raises OSError where the system does not tell, or no room is reserved."""
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        begin, end, env_begin, env_end = map(int, fields[_FIRST_FIELD : _FIRST_FIELD + 4])
        if not 0 < begin < end <= env_begin < env_end:
            raise OSError("the system does not tell where the arguments are")
        entries = b"\0" + ctypes.string_at(env_begin, env_end - env_begin)
        entry = f"{RESERVED}={'-' * _SIZE}".encode()
        at = entries.find(b"\0" + entry + b"\0")
        if at < 0 or procfs.environment(os.getpid()).get(RESERVED) is None:
            raise OSError("no room is reserved in the environment")
        return cls(begin, end - begin, env_begin + at, len(entry))

    def fits(self, variables: Dict[str, str]) -> bool:
        """Whether there is room for these variables."""
        return len(_entries(variables)) <= self.variables_size

    def change(self, command: Sequence[str], variables: Dict[str, str]) -> None:
        """Show this command line, cut off where it is too long, and these variables, which must fit."""
        words = "\0".join(command).encode("utf-8", "surrogateescape")[: self.arguments_size - 1]
        _write(self.arguments, words, self.arguments_size)
        _write(self.variables, _entries(variables), self.variables_size)


def _entries(variables: Dict[str, str]) -> bytes:
    entries = (f"{name}={value}" for name, value in variables.items())
    return "\0".join(entries).encode("utf-8", "surrogateescape")


def _write(address: int, data: bytes, size: int) -> None:
    ctypes.memmove(address, data + bytes(size - len(data)), size)
