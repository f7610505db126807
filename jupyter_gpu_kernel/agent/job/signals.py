"""Signals of a job's process: blocked, and read from a descriptor, so that their senders are known."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Callable, NamedTuple

from .. import procfs
from ..loop import Loop

CAUGHT = frozenset(
    {
        *(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
        *(signal.SIGURG, signal.SIGXCPU, signal.SIGALRM, signal.SIGCHLD),
    }
)
"""All that may be chosen as a job's warning signal, what ends it, and SIGCHLD."""
_POLL_INTERVAL = 0.2
"""Seconds, where there is no descriptor for signals."""


class Received(NamedTuple):
    """A signal, and the process that sent it: its id, its user's id, and its program's name as far as it is known."""

    name: str
    pid: int
    uid: int
    command: str


def block() -> None:
    """Block these signals in this thread and all that it starts. Call it before there are any others."""
    signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)


def unblock() -> None:
    """Receive all signals again: a process inherits from its parent what is blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class SignalReader:
    """Calls `on_signal` for each blocked signal that arrives."""

    def __init__(self, loop: Loop, on_signal: Callable[[Received], None]) -> None:
        self._loop = loop
        self._on_signal = on_signal
        mask = (ctypes.c_ulong * (128 // ctypes.sizeof(ctypes.c_ulong)))(
            sum(1 << (number - 1) for number in CAUGHT)
        )
        fd = ctypes.CDLL(None).signalfd(-1, mask, os.O_CLOEXEC)
        if fd >= 0:
            loop.watch(fd, lambda _: self._read())
        else:
            self._poll()

    def _poll(self) -> None:
        self._read()
        self._loop.later(_POLL_INTERVAL, self._poll)

    def _read(self) -> None:
        while True:
            info = signal.sigtimedwait(CAUGHT, 0)
            if info is None:
                return
            command = procfs.command_name(info.si_pid)  # at once, as a `kill` process ends in a moment
            name = signal.Signals(info.si_signo).name
            self._on_signal(Received(name, info.si_pid, info.si_uid, command))
