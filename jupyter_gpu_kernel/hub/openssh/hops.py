"""The machines to which the ssh program has signed in: how commands are run there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ...errors import AuthError, ConnectError, GpuKernelError, HostKeyError
from ..ssh.config.route import Hop
from ..ssh.route_connection import OpenHop, SessionRefused
from ..transport.connection import SHELL, run_to_end
from ..transport.stream import CommandStream, return_within
from . import complaints
from .process import READY, SIGN_IN, SSHLog, SSHProcess
from .program import Program, SignIn, opened

_TURN_WAIT = 120.0  # seconds for the commands before, where they share a shell
_LONG = 1000.0  # seconds


class MasterHop(OpenHop):
    """A machine to which a ControlMaster holds the connection: each command has a session of its own."""

    def __init__(self, hop: Hop, program: Program, control: Path, process: SSHProcess | None) -> None:
        """`control`: where the master listens. `process`: ours; None for the user's own, which is never ended, and not
        shared with routes that begin elsewhere."""
        self.log = process.logs[-1] if process is not None else SSHLog()
        super().__init__(self.log.fingerprint)
        self.shareable = process is not None
        self.process = process
        self._hop, self._program, self._control = hop, program, control
        self._lost = False  # the master has ended while a session was asked for

    def alive(self) -> bool:
        """Whether the master listens."""
        listens = self._control.exists() and not self._lost
        return listens and (self.process is None or self.process.runs)

    def sign_in(self) -> SignIn:
        """Return how ssh gets to this machine: through the master."""
        return opened(self._hop, self._control)

    def open(self, command: str, timeout: float) -> CommandStream:
        """Run a command, once the server has opened a session for it."""
        log = SSHLog()
        try:
            route = opened(self._hop, self._control, log.file)
            process = SSHProcess(self._program.command([route], command), [log])
        except OSError as error:
            raise complaints.not_started(self._hop, error) from error
        answered = log.wait_beyond(SIGN_IN, timeout)
        if log.last_step == READY:
            return process.stream
        process.stream.close()
        if log.refusal:
            raise SessionRefused(log.refusal)
        if not answered:
            raise TimeoutError
        self._lost = True
        raise OSError("the master has ended")

    def responds(self, within: float) -> bool:
        """Whether the server opens a session, or refuses to, within so many seconds."""
        try:
            self.open("true", within).close()
        except SessionRefused:
            return self.alive()
        except (OSError, ConnectError):
            return False
        return True

    def close(self) -> None:
        """End the master, if this package has started it."""
        if self.process is not None:
            self.process.end()


class DirectHop(OpenHop):
    """The last machine of a route, to which one process of ssh leads through all hops.

    Its shell runs short commands, one after the other, until a stream takes that shell: so one sign-in serves for both.
    What needs a session besides signs in again, without asking the user."""

    shareable = False

    def __init__(self, process: SSHProcess, dial: Callable[[str, float], SSHProcess]) -> None:
        """`process` runs a shell. `dial(command, timeout)` starts another process; it raises a GpuKernelError."""
        super().__init__(process.logs[-1].fingerprint)
        self._dial = dial
        self._processes = [process]
        self._idle: SSHProcess | None = process  # its shell is in nobody's use
        self._turn = threading.Lock()

    def alive(self) -> bool:
        """Whether one of the processes runs."""
        return any(one.runs for one in self._processes)

    def open(self, command: str, timeout: float) -> CommandStream:
        """Run a command. The idle shell is taken where a shell is asked for."""
        if command != SHELL:
            return self._start(command, timeout).stream
        with self._shell(timeout) as process:
            return process.stream

    @contextlib.contextmanager
    def shell(self, timeout: float) -> Iterator[CommandStream]:
        """Yield the idle shell, or a new one, which is kept for the next command."""
        with self._shell(timeout) as process:
            yield process.stream
            if process.runs:
                self._idle = process
            else:
                process.stream.close()

    def responds(self, within: float) -> bool:
        """Whether the idle shell answers within so many seconds: a later answer does no harm. If the shell is in use,
        its user will notice the silence. If another session is refused, the machine responds."""
        if self._idle is None:
            return self.alive()
        try:  # the time of another sign-in ends later, so that its error is no silence
            return_within(within, partial(self._ask, 2 * within))
        except (AuthError, HostKeyError, SessionRefused):
            pass  # the machine has answered
        except (OSError, GpuKernelError):
            return False
        return self.alive()

    def close(self) -> None:
        """End all processes."""
        for one in self._processes:
            one.end()

    def _ask(self, timeout: float) -> None:
        with self.shell(timeout) as shell:
            run_to_end(shell, b"", _LONG, "", "true")

    @contextlib.contextmanager
    def _shell(self, timeout: float) -> Iterator[SSHProcess]:
        """Yield the process with the idle shell, or a new one, while no other command uses it."""
        if not self._turn.acquire(timeout=_TURN_WAIT):
            raise TimeoutError("other commands are running")
        try:
            process, self._idle = self._idle, None
            if process is None or not process.runs:
                process = self._start(SHELL, timeout)
            yield process
        finally:
            self._turn.release()

    def _start(self, command: str, timeout: float) -> SSHProcess:
        """Run a command by another process of ssh."""
        if not self.alive():
            raise OSError("the connection has ended")
        process = self._dial(command, timeout)
        self._processes = [*(one for one in self._processes if one.runs), process]
        return process
