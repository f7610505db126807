"""Inside the kernel: every process that Python starts has SIGTERM's default action and does not block it, though
the kernel's own threads do.

A fork hook, and a moment without the block around the functions that start programs. This file must not know what the
guard does with a signal.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from typing import Any, Callable

TERM = frozenset({signal.SIGTERM})


class Children:
    """`on()`: whether SIGTERM is blocked here; `let_go()`, in a forked child: its normal behaviour is back.

    What forks in C without Python's hooks inherits the block; SIGKILL ends that as well.
    """

    def __init__(self, on: Callable[[], bool], let_go: Callable[[], None]) -> None:
        self._on = on
        self._let_go = let_go

    def install(self) -> None:
        """Once, before the first child."""
        os.register_at_fork(after_in_child=self._let_go)
        posix: Any = __import__("_posixsubprocess")
        subprocess: Any = __import__("subprocess")
        posix.fork_exec = self._unblocked(posix.fork_exec)
        if hasattr(subprocess, "_fork_exec"):  # Python 3.11 and later have a name of their own for it
            subprocess._fork_exec = posix.fork_exec
        for name in ("posix_spawn", "posix_spawnp"):
            setattr(os, name, self._unblocked(getattr(os, name)))
        os.system = functools.wraps(os.system)(_system)

    def _unblocked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, with SIGTERM unblocked in the calling thread while it starts a process."""

        @functools.wraps(function)
        def start(*args: Any, **kwargs: Any) -> Any:
            if not self._on():
                return function(*args, **kwargs)
            before = signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)
            try:
                return function(*args, **kwargs)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                _tame_resource_tracker()

        return start


def _system(command: Any) -> int:
    # C's system() returns when the command has ended: too long to be without the block.
    line = os.fsencode(command)
    sys.audit("os.system", line)
    pid = os.posix_spawn("/bin/sh", [b"sh", b"-c", line], os.environ)
    while True:
        try:
            return os.waitpid(pid, 0)[1]
        except KeyboardInterrupt:  # as in C: an interrupt is for the command, which got it too
            continue


def _tame_resource_tracker() -> None:
    """multiprocessing's tracker unblocks SIGTERM in the thread that starts it, right after: not in ours."""
    tracker: Any = sys.modules.get("multiprocessing.resource_tracker")
    if signal.SIGTERM in getattr(tracker, "_IGNORED_SIGNALS", ()):
        tracker._IGNORED_SIGNALS = (signal.SIGINT,)
