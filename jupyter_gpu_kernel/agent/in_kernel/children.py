"""Gives child processes of the kernel a normal SIGTERM, although the kernel's own threads block it.

A fork hook restores it in forked children, and the functions that start programs run with the signal unblocked. A
process that C code forks inherits the block; SIGKILL ends it, too. This module does not know what the guard does with
a signal.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from typing import Any, Callable

TERM = frozenset({signal.SIGTERM})


class Children:
    """Patches what starts processes. Call `install` once, before the first child process."""

    def __init__(self, is_blocked: Callable[[], bool], restore: Callable[[], None]) -> None:
        """`is_blocked()`: whether SIGTERM is blocked here; `restore()` makes it normal again, in a forked child."""
        self._is_blocked = is_blocked
        self._restore = restore

    def install(self) -> None:
        """Install the fork hook and the patches."""
        os.register_at_fork(after_in_child=self._restore)
        posix: Any = __import__("_posixsubprocess")
        subprocess: Any = __import__("subprocess")
        posix.fork_exec = self._unblocked(posix.fork_exec)
        if hasattr(subprocess, "_fork_exec"):  # Python 3.11 and later import it by this name
            subprocess._fork_exec = posix.fork_exec
        for name in ("posix_spawn", "posix_spawnp"):
            setattr(os, name, self._unblocked(getattr(os, name)))
        os.system = functools.wraps(os.system)(_system)

    def _unblocked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with SIGTERM unblocked in the calling thread while it starts a process."""

        @functools.wraps(function)
        def start(*args: Any, **kwargs: Any) -> Any:
            if not self._is_blocked():
                return function(*args, **kwargs)
            before = signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)
            try:
                return function(*args, **kwargs)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                _patch_resource_tracker()

        return start


def _system(command: Any) -> int:
    # C's system() returns only when the command has ended: SIGTERM would be unblocked for too long.
    line = os.fsencode(command)
    sys.audit("os.system", line)
    pid = os.posix_spawn("/bin/sh", [b"sh", b"-c", line], os.environ)
    while True:
        try:
            return os.waitpid(pid, 0)[1]
        except KeyboardInterrupt:  # as in C, an interrupt is for the command, which has received it as well
            continue


def _patch_resource_tracker() -> None:
    """Keep multiprocessing's resource tracker from unblocking SIGTERM in the thread that has started it."""
    tracker: Any = sys.modules.get("multiprocessing.resource_tracker")
    if signal.SIGTERM in getattr(tracker, "_IGNORED_SIGNALS", ()):
        tracker._IGNORED_SIGNALS = (signal.SIGINT,)
