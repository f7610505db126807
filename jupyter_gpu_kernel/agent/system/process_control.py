"""Makes this process a daemon, and has what Python lacks for signals and processes.

A keeper is a daemon: it has a session of its own and no terminal, it returns memory to the system, and it writes no
core file, as its memory holds the kernel's key and environment. Its kernel may write one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, Iterable

from .agent_runtime import forbid_core_files

_PR_SET_CHILD_SUBREAPER = 36
_M_MMAP_THRESHOLD, _LARGE_BLOCK = -3, 128 * 1024


def open_pidfd(pid: int) -> int:
    """Return a descriptor of the process; -1 where the system has none. Raises ProcessLookupError if it has ended."""
    opener: Any = getattr(os, "pidfd_open", None)
    if opener is None or not hasattr(signal, "pidfd_send_signal"):
        return -1
    try:
        return int(opener(pid))
    except ProcessLookupError:
        raise
    except OSError:  # an old Linux with a new Python
        return -1


def open_signalfd(numbers: Iterable[int]) -> int:
    """Return a descriptor that is readable while one of these signals is pending; they must be blocked. Raises OSError
    where the system has none."""
    mask = (ctypes.c_ulong * (128 // ctypes.sizeof(ctypes.c_ulong)))(
        sum(1 << (number - 1) for number in numbers)
    )
    fd = int(ctypes.CDLL(None).signalfd(-1, mask, os.O_CLOEXEC))
    if fd < 0:
        raise OSError("this system has no signalfd")
    return fd


def become_subreaper() -> None:
    """Become the parent of every process below this one that loses its own, daemons included."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def next_ended_child() -> int:
    """Return the id of a child that has ended, which is still to be waited for; 0 if there is none."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return 0 if ended is None else ended.si_pid


def detach(work: Callable[[], None], log: Path) -> None:
    """Run `work()` in a daemon, whose stdout and stderr go to `log`, and return in the caller at once. Must be called
    before any thread or zmq context exists."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    status = 0
    try:
        _redirect(log)
        forbid_core_files()
        _return_large_blocks()
        work()
    except BaseException:
        status = 1
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


def _redirect(log: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_RDWR)
    out = os.open(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, fd in ((0, null), (1, out), (2, out)):
        os.dup2(fd, target)


def _return_large_blocks() -> None:
    """Have glibc return large freed blocks to the system at once, instead of keeping them for later allocations."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
