"""One hop of a connection by the ssh program: the sessions through the ControlMaster that holds it."""

from __future__ import annotations

from pathlib import Path

from ...errors import ConnectError
from ..ssh.route_connection import NoSession, OpenHop, SessionRefused
from ..transport.stream import CommandStream
from .master import Master
from .program import Program
from .session import SessionEnds


class MasterHop(OpenHop):
    """A machine to which a master holds the connection."""

    def __init__(self, label: str, program: Program, control: Path, master: Master | None) -> None:
        """`control`: where the master listens. `master`: ours; None for the user's own, which is never ended, and not
        shared with routes that begin elsewhere."""
        key = master.log.host_key if master is not None else None
        super().__init__(key.fingerprint if key is not None else "")
        self.shareable = master is not None
        self.control = control
        self.master = master
        self._label = label
        self._program = program
        self._lost = False  # the master has ended while a session was asked for

    def alive(self) -> bool:
        """Whether the master listens."""
        if self._lost or not self.control.exists():
            return False
        return self.master is None or self.master.listens

    def open(self, command: str, timeout: float) -> CommandStream:
        """Run a command, once the server has opened a session for it."""
        try:
            ends = SessionEnds(self._program.session(self.control, command))
        except OSError as error:
            cause = f"the ssh program cannot be run: {error.strerror or error}"
            raise ConnectError(cause, hop=self._label, remedy="Try again.") from error
        stream = CommandStream(ends)
        try:
            ends.check_opened(timeout)
        except BaseException as error:
            stream.close()
            self._lost |= isinstance(error, NoSession) and not error.timed_out
            raise
        return stream

    def responds(self, within: float) -> bool:
        """Whether the server opens a session, or refuses to, within so many seconds."""
        try:
            self.open("true", within).close()
        except SessionRefused:
            return self.alive()
        except (NoSession, ConnectError):
            return False
        return True

    def close(self) -> None:
        """End the master, if it is ours."""
        if self.master is not None:
            self.master.end()
