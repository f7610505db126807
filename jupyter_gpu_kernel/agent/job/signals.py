"""Signals of a job's process: blocked, and read from a descriptor, so that their senders are known."""

from __future__ import annotations

import signal
from typing import Callable, NamedTuple

from ..system import procfs
from ..system.loop import Loop
from ..system.process_control import open_signalfd

CAUGHT = frozenset(
    {
        *(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
        *(signal.SIGURG, signal.SIGXCPU, signal.SIGALRM, signal.SIGCHLD),
    }
)
"""All that may be chosen as a job's warning signal, what ends it, and SIGCHLD."""


class Received(NamedTuple):
    """A signal, and the process that sent it: its id, its user's id, and its program's name as far as it is known."""

    name: str
    pid: int
    uid: int
    command: str


def block() -> None:
    """Block the CAUGHT signals in this thread and all that it starts. Call it before there are other threads."""
    signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)


def unblock() -> None:
    """Block no signals: a process inherits from its parent which signals are blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def watch_signals(loop: Loop, on_signal: Callable[[Received], None]) -> None:
    """Call `on_signal` for each blocked signal that arrives."""

    def read(_: int) -> None:
        info = signal.sigtimedwait(CAUGHT, 0)
        while info is not None:
            command = procfs.command_name(info.si_pid)  # at once, as a `kill` process ends in a moment
            name = signal.Signals(info.si_signo).name
            on_signal(Received(name, info.si_pid, info.si_uid, command))
            info = signal.sigtimedwait(CAUGHT, 0)

    loop.watch(open_signalfd(CAUGHT), read)
