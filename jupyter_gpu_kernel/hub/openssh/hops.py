"""The machines to which the ssh program has signed in: how commands are run there.

Short commands share a shell, one after the other, which the stream of the agent may take at last. So without a
ControlMaster, as on Windows, one sign-in serves for both.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from ...errors import GpuKernelError
from ..ssh.route_connection import NoSession, OpenHop, SessionRefused
from ..transport.short_command import SHELL, run_to_end
from ..transport.stream import CommandStream
from .log import Log
from .process import SSHProcess

_COMMANDS = 4  # short commands at a time through a master
_LONG = 1000.0  # seconds


Dial = Callable[[str, float], SSHProcess]


class ProgramHop(OpenHop):
    """A machine to which the ssh program has signed in."""

    def __init__(self, log: Log, dial: Dial, process: SSHProcess | None, control: Path | None) -> None:
        """`process` is ours, with its log. It is a ControlMaster that listens at `control`; or it carries a shell, if
        there is no ControlMaster. None: the user's own master, which is never ended, and not shared with routes that
        begin elsewhere. `dial(command, timeout)` starts another process, without asking the user; it raises
        SessionRefused, NoSession or a GpuKernelError."""
        super().__init__(log.fingerprint)
        self.shareable = process is not None and control is not None
        self.log, self.process, self.control = log, process, control
        self._dial = dial
        self._lost = False  # the master has ended while a session was asked for
        self._alone = [process] if process is not None and control is None else []
        self._idle = [one.stream for one in self._alone]  # shells
        self._turns = threading.Semaphore(1 if self._alone else _COMMANDS)

    def alive(self) -> bool:
        """Whether the master listens, or one of the processes runs."""
        if self._alone:
            return any(one.runs for one in self._alone)
        listens = self.control is not None and self.control.exists()
        return listens and not self._lost and (self.process is None or self.process.runs)

    def open(self, command: str, timeout: float) -> CommandStream:
        """Run a command. An idle shell is taken where a shell is asked for."""
        if command != SHELL:
            return self._start(command, timeout)
        self._take_turn(timeout)
        try:
            return self._shell(timeout)
        finally:
            self._turns.release()

    @contextlib.contextmanager
    def shell(self, timeout: float) -> Iterator[CommandStream]:
        """Yield an idle shell, or a new one. One is kept, since a server permits only so many sessions."""
        self._take_turn(timeout)
        try:
            shell = self._shell(timeout)
            yield shell
            if _runs(shell) and not self._idle:
                self._idle.append(shell)
            else:
                shell.close()
        finally:
            self._turns.release()

    def responds(self, within: float) -> bool:
        """Whether the server runs a command, or refuses to, within so many seconds. A later answer does no harm.

        Who uses the only process will notice the silence."""
        if self._alone and not self._idle:
            return self.alive()
        answered = threading.Event()
        threading.Thread(target=self._ask, args=(within, answered), name="ssh answer", daemon=True).start()
        return answered.wait(within) and self.alive()

    def _ask(self, within: float, answered: threading.Event) -> None:
        with contextlib.suppress(NoSession, GpuKernelError, SessionRefused), self.shell(within) as shell:
            run_to_end(shell, b"", _LONG, "", "true")
        answered.set()

    def close(self) -> None:
        """End all processes, but not the user's own master."""
        for shell in self._idle:
            shell.close()
        for one in (self.process, *self._alone):
            if one is not None:
                one.end()

    def _start(self, command: str, timeout: float) -> CommandStream:
        """Run a command by another process of ssh."""
        if not self.alive():
            raise NoSession("the connection has ended", timed_out=False)
        try:
            process = self._dial(command, timeout)
        except SessionRefused:
            for shell in self._idle:  # for the next attempt
                shell.close()
            raise
        except NoSession as error:
            self._lost |= not error.timed_out
            raise
        if self._alone:
            self._alone.append(process)
        return process.stream

    def _take_turn(self, timeout: float) -> None:
        if not self._turns.acquire(timeout=timeout):
            raise NoSession("other commands are running", timed_out=True)

    def _shell(self, timeout: float) -> CommandStream:
        with contextlib.suppress(IndexError):
            while True:
                shell = self._idle.pop()
                if _runs(shell):
                    return shell
                shell.close()
        return self._start(SHELL, timeout)


def _runs(stream: CommandStream) -> bool:
    return not stream.closed and stream.wait(0) is None
