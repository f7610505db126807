"""An open SSH connection of one or more hops, held by ControlMasters: runs commands and opens byte streams on the last.

`connect.py` makes it. This module knows no route, no keys and no meaning of the bytes.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from subprocess import CompletedProcess

from ...errors import ConnectError
from ..connections.short_command import run_to_end
from ..sanitize import one_line
from .master import Master
from .mux import MuxError, MuxRefused, MuxSocket, MuxTimeout
from .stream import SessionStream

_MAX_COMMANDS = 4  # short commands at a time; a server allows 10 sessions per connection (MaxSessions)
_OPEN_TIMEOUT = 20.0  # seconds for the server to open a session
_SESSION_RETRY = 2.0  # seconds in which a refused session is asked for again
_MASTER_TIMEOUT = 5.0  # seconds for a master on this machine to answer


class OpenSSHConnection:
    """A connection through one or more hops."""

    def __init__(self, transport: str) -> None:
        self.transport = transport
        """What speaks SSH, and why, in words."""
        self.steps: list[tuple[str, str, float]] = []
        """(hop, step, seconds) of each step of connecting, in order."""
        self.interactive = False
        """Whether the user typed a secret for it: it cannot be opened again without the user."""
        self.closed = False
        """Whether `close` was called."""
        self._lost = False  # a master has ended while a session was asked for
        self.machine_id = ""
        """A hash of the last hop's host key; "" if the user's own connection is used, as its key is not known."""
        self.labels: list[str] = []
        self.masters: list[Master] = []
        """Our own, to be ended."""
        self._sockets: list[MuxSocket] = []  # one to each master: it ends when the master does
        self._control: Path | None = None
        self._streams: set[SessionStream] = set()
        self._lock = threading.Lock()
        self._short_commands = threading.BoundedSemaphore(_MAX_COMMANDS)

    # --- for connect.py

    @property
    def last_control(self) -> Path | None:
        """The ControlPath of the last hop so far."""
        return self._control

    def add(self, label: str, control: Path, fingerprint: str) -> None:
        """Add the next hop, whose master listens at `control`. Raises MuxError if it does not."""
        self._sockets.append(MuxSocket(control, _MASTER_TIMEOUT))
        self.labels.append(label)
        self._control = control
        self.machine_id = fingerprint

    def enable_tcp_nodelay(self) -> None:
        """Run `true` on the last hop so far, without waiting: OpenSSH sets TCP_NODELAY only on connections that have
        had a session, and a mere jump host never has one. If the hop refuses, it is slower."""
        threading.Thread(
            target=self._open_session_briefly,
            name="ssh enable_tcp_nodelay",
            args=(self._control,),
            daemon=True,
        ).start()

    def _open_session_briefly(self, control: Path) -> None:
        try:
            stream = SessionStream(control, "true", _OPEN_TIMEOUT)
        except MuxError:
            return  # nologin, MaxSessions: the connection works all the same
        stream.close_stdin()
        stream.wait(_OPEN_TIMEOUT)
        stream.close()

    # --- for all users

    def open(self, command: str) -> SessionStream:
        """Run `command` in the last hop's login shell; return its stdin and stdout as a stream.

        Raises ConnectError if the connection is broken, or the host refuses or does not answer in time.
        """
        return self._open(command, _OPEN_TIMEOUT)

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> CompletedProcess[bytes]:
        """Run a short command. Raises ConnectError if it does not end within `timeout` (s), or the connection breaks.

        The return code is -1 if the server did not report one; stderr is the last 64 KiB."""
        with self._short_commands:
            stream = self._open(command, min(timeout, _OPEN_TIMEOUT))
            done = run_to_end(stream, stdin, timeout, self.labels[-1], command)
        if done.returncode < 0 and not self.alive():
            raise self._lost_error()
        return done

    def alive(self) -> bool:
        """Whether all masters run. A connection that died silently is found out by `responds` only."""
        if self.closed or self._lost:
            return False
        return bool(self._sockets) and all(one.open for one in self._sockets)

    def responds(self, within: float) -> bool:
        """Whether the last hop opens a session, or refuses to, within so many seconds. Blocks."""
        assert self._control is not None
        try:
            SessionStream(self._control, "true", within).close()
        except MuxRefused:
            return self.alive()
        except MuxError:
            return False
        return True

    def close(self) -> None:
        """End our own masters, the first one first: the others may be blocked in sending through it. The user's own
        stays."""
        self.closed = True
        with self._lock:
            streams, self._streams = self._streams, set()
        for stream in streams:
            stream.close()
        for master in self.masters:
            master.end()
        for one in self._sockets:
            one.close()

    # --- sessions

    def _open(self, command: str, timeout: float) -> SessionStream:
        stream = self._session(command, time.monotonic() + timeout)
        with self._lock:
            self._streams = {one for one in self._streams if not one.closed} | {stream}
        return stream

    def _session(self, command: str, end: float) -> SessionStream:
        assert self._control is not None
        patience = min(time.monotonic() + _SESSION_RETRY, end)
        while True:
            try:
                return SessionStream(self._control, command, max(end - time.monotonic(), 0.05))
            except MuxRefused as error:
                # The server may not have released yet a session that we have just closed.
                if time.monotonic() > patience:
                    raise ConnectError(
                        f"refused another session on this connection (MaxSessions): {one_line(str(error))}",
                        hop=self.labels[-1],
                        remedy="Close other uses of this connection, or ask its administrators for a higher limit.",
                    ) from error
                time.sleep(0.05)
            except MuxError as error:
                if not isinstance(error, MuxTimeout) or not self.alive():
                    self._lost = True
                    raise self._lost_error() from error
                raise ConnectError(
                    "timed out", hop=self.labels[-1], remedy="Check the network and try again."
                ) from error

    def _lost_error(self) -> ConnectError:
        return ConnectError(
            "the connection was lost", hop=self.labels[-1], remedy="Check the network and try again."
        )
