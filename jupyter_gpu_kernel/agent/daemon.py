"""Turns a process into a keeper's daemon: a session of its own, no terminal, no core files, and memory
that is returned to the system.

A keeper writes no core file, as its memory holds the kernel's key and environment. Its kernel may write one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
import traceback
from pathlib import Path
from typing import Callable, Iterator, List, Tuple

_STARTED = b"begun"
_M_MMAP_THRESHOLD, _LARGE_BLOCK = -3, 128 * 1024
_core_limit: List[Tuple[int, int]] = []  # from before it was set to 0


def detach(work: Callable[[Callable[[], None]], None], log: Path) -> int:
    """Run `work(started)` in a daemon. In the caller, return 0 once it has called `started()`, or 1 with its error on
    stderr.

    Must be called before any thread or zmq context exists. The daemon's stdout and stderr go to `log`.
    """
    read_fd, write_fd = os.pipe()
    if os.fork():
        os.close(write_fd)
        with os.fdopen(read_fd, "rb") as pipe:
            result = pipe.read()
        if result == _STARTED:
            return 0
        sys.stderr.write(result.decode("utf-8", "replace") or "the keeper exited during its start\n")
        return 1
    os.setsid()
    if os.fork():
        os._exit(0)
    _run(work, write_fd, log)
    return 0


@contextlib.contextmanager
def original_core_limit() -> Iterator[None]:
    """Start a process with the limit on core files that this process had before it became a daemon."""
    if not _core_limit:
        yield
        return
    resource.setrlimit(resource.RLIMIT_CORE, _core_limit[0])
    try:
        yield
    finally:
        _forbid_core_files()


def _run(work: Callable[[Callable[[], None]], None], write_fd: int, log: Path) -> None:
    os.set_inheritable(write_fd, False)

    def started() -> None:
        os.write(write_fd, _STARTED)
        os.close(write_fd)

    status = 0
    try:
        _redirect(log)
        _forbid_core_files()
        _return_large_blocks()
        work(started)
    except BaseException as error:
        status = 1
        try:
            os.write(write_fd, f"{type(error).__name__}: {error}\n".encode())
        except OSError:  # it had started: the log gets the error
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


def _forbid_core_files() -> None:
    if not _core_limit:
        _core_limit.append(resource.getrlimit(resource.RLIMIT_CORE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, _core_limit[0][1]))


def _return_large_blocks() -> None:
    """Have glibc return large freed blocks to the system at once, instead of keeping them for later allocations."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
