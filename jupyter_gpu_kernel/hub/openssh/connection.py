"""An open SSH connection of one or more hops, held by ControlMasters: runs commands and opens byte streams on the last.

`connect.py` makes it. Connections whose routes begin alike can share the first hops. This module knows no keys and no
meaning of the bytes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

from ...errors import ConnectError
from ..sanitize import one_line
from ..ssh.route import Hop, begins_with
from ..transport.short_command import run_to_end
from ..transport.stream import CommandStream
from .master import Master
from .program import Program
from .session import NoSession, SessionEnds, SessionRefused, reporting

_SSH_FAILED = 255  # the exit status of ssh itself, or of a command
_MAX_COMMANDS = 4  # short commands at a time; a server allows 10 sessions per connection (MaxSessions)
_OPEN_TIMEOUT = 20.0  # seconds for the server to open a session
_SESSION_RETRY = 2.0  # seconds in which a refused session is asked for again
_sharing = threading.Lock()  # while it changes who uses a master


class OpenSSHConnection:
    """A connection through one or more hops."""

    def __init__(self, program: Program, transport: str) -> None:
        self._program = program
        self.transport = transport
        """What speaks SSH, and why, in words."""
        self.steps: list[tuple[str, str, float]] = []
        """(hop, step, seconds) of each step of connecting, in order."""
        self.closed = False
        """Whether `close` was called."""
        self._lost = False  # a master has ended while a session was asked for
        self.host_keys: list[tuple[str, str]] = []
        """(hop, fingerprint) of each hop's verified host key; "" for the user's own connection."""
        self.hops: list[Hop] = []
        self._typed = 0  # the number of hops up to the last one for which the user typed a secret
        self.masters: list[Master] = []
        """Our own, to be ended."""
        self._control: Path | None = None
        self._streams: set[CommandStream] = set()
        self._lock = threading.Lock()
        self._short_commands = threading.BoundedSemaphore(_MAX_COMMANDS)

    # --- for connect.py

    @property
    def last_control(self) -> Path | None:
        """The ControlPath of the last hop so far."""
        return self._control

    def share(self, route: Sequence[Hop]) -> OpenSSHConnection | None:
        """As `SSHConnection.share`. Hops that come after the user's own connection are not shared."""
        shared = OpenSSHConnection(self._program, self.transport)
        with _sharing:
            hops, masters = self.hops[: self._typed], self.masters[: self._typed]
            all_ours = len(self.masters) == len(self.hops) and all(master.listens for master in masters)
            if not hops or self.closed or not all_ours or not begins_with(route, hops):
                return None
            for hop, master in zip(route, masters, strict=False):
                shared.add(hop, master.control, master)
        shared._typed = self._typed
        return shared

    def add(self, hop: Hop, control: Path, master: Master | None) -> None:
        """Add the next hop, whose master listens at `control`. `master`: that of ours; None for the user's own."""
        self.hops.append(hop)
        self._control = control
        key = master.log.host_key if master is not None else None
        self.host_keys.append((hop.label, key.fingerprint if key is not None else ""))
        if master is not None:
            master.users += 1
            self.masters.append(master)

    def mark_typed(self) -> None:
        """The user typed a secret for the last hop so far."""
        self._typed = len(self.hops)

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
        # A refusal (nologin, MaxSessions) does no harm: the connection works all the same.
        with contextlib.suppress(SessionRefused, NoSession):
            stream = self._start(control, "true", _OPEN_TIMEOUT)
            stream.close_stdin()
            stream.wait(_OPEN_TIMEOUT)
            stream.close()

    # --- for all users

    @property
    def interactive(self) -> bool:
        """Whether the user typed a secret for it: it cannot be opened again without the user."""
        return self._typed > 0

    def open(self, command: str) -> CommandStream:
        """Run `command` in the last hop's login shell; return its stdin and stdout as a stream.

        Raises ConnectError if the connection is broken, or the host refuses or does not answer in time.
        """
        return self._open(command, _OPEN_TIMEOUT)

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> CompletedProcess[bytes]:
        """Run a short command. Raises ConnectError if it does not end within `timeout` (s), or the connection breaks.

        The return code is -1 if the server did not report one; stderr is the last 64 KiB."""
        with self._short_commands:
            stream = self._open(reporting(command), min(timeout, _OPEN_TIMEOUT))
            done = run_to_end(stream, stdin, timeout, self.hops[-1].label, command)
        if done.returncode in (-1, _SSH_FAILED) and not self.alive():
            raise self._lost_error()
        return done

    def alive(self) -> bool:
        """Whether all masters run. A connection that died silently is found out by `responds` only."""
        if self.closed or self._lost:
            return False
        return (
            self._control is not None
            and self._control.exists()
            and all(master.listens for master in self.masters)
        )

    def responds(self, within: float) -> bool:
        """Whether the last hop opens a session, or refuses to, within so many seconds. Blocks."""
        assert self._control is not None
        try:
            self._start(self._control, "true", within).close()
        except SessionRefused:
            return self.alive()
        except NoSession:
            return False
        return True

    def close(self) -> None:
        """End our own masters that no other connection uses, the first one first: the others may be blocked in sending
        through it. The user's own stays."""
        with _sharing:
            if self.closed:
                return
            self.closed = True
            for master in self.masters:
                master.users -= 1
            unused = [master for master in self.masters if not master.users]
        with self._lock:
            streams, self._streams = self._streams, set()
        for stream in streams:
            stream.close()
        for master in unused:
            master.end()

    # --- sessions

    def _open(self, command: str, timeout: float) -> CommandStream:
        stream = self._session(command, time.monotonic() + timeout)
        with self._lock:
            self._streams = {one for one in self._streams if not one.closed} | {stream}
        return stream

    def _session(self, command: str, end: float) -> CommandStream:
        assert self._control is not None
        patience = min(time.monotonic() + _SESSION_RETRY, end)
        while True:
            try:
                return self._start(self._control, command, max(end - time.monotonic(), 0.05))
            except SessionRefused as error:
                # The server may not have released yet a session that we have just closed.
                if time.monotonic() > patience:
                    raise ConnectError(
                        f"refused another session on this connection (MaxSessions): {one_line(str(error))}",
                        hop=self.hops[-1].label,
                        remedy="Close other uses of this connection, or ask its administrators for a higher limit.",
                    ) from error
                time.sleep(0.05)
            except NoSession as error:
                if not error.timed_out or not self.alive():
                    self._lost = True
                    raise self._lost_error() from error
                raise ConnectError(
                    "timed out", hop=self.hops[-1].label, remedy="Check the network and try again."
                ) from error

    def _start(self, control: Path, command: str, timeout: float) -> CommandStream:
        """Run a command, once the server has opened a session for it. Raises SessionRefused, or NoSession."""
        ends = SessionEnds(self._program.session(control, command))
        stream = CommandStream(ends)
        try:
            ends.check_opened(timeout)
        except BaseException:
            stream.close()
            raise
        return stream

    def _lost_error(self) -> ConnectError:
        return ConnectError(
            "the connection was lost", hop=self.hops[-1].label, remedy="Check the network and try again."
        )
