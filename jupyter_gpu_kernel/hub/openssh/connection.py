"""An open SSH connection of one or more hops, held by ControlMasters: runs commands and opens byte streams on the last.

`connect.py` makes it. Connections whose routes begin alike can share the first hops. This module knows no keys and no
meaning of the bytes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

from ...errors import ConnectError
from ..ssh.route import Hop, begins_with
from ..ssh.route_connection import OPEN_TIMEOUT, RouteConnection, SessionRefused
from ..transport.stream import CommandStream
from .master import Master
from .program import Program
from .session import NoSession, SessionEnds, reporting

_sharing = threading.Lock()  # while it changes who uses a master


class OpenSSHConnection(RouteConnection):
    """A connection through one or more hops by the ssh program."""

    def __init__(self, program: Program, transport: str) -> None:
        super().__init__(transport)
        self._program = program
        self._lost = False  # a master has ended while a session was asked for
        self.masters: list[Master] = []
        """Our own, to be ended."""
        self._control: Path | None = None
        self._streams: set[CommandStream] = set()

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
            stream = self._session(control, "true", OPEN_TIMEOUT)
            stream.close_stdin()
            stream.wait(OPEN_TIMEOUT)
            stream.close()

    # --- for all users

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
            self._session(self._control, "true", within).close()
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

    def _short(self, command: str) -> str:
        return reporting(command)

    def _start(self, command: str, timeout: float) -> CommandStream:
        assert self._control is not None
        try:
            stream = self._session(self._control, command, timeout)
        except NoSession as error:
            if error.timed_out and self.alive():
                raise self._timeout_error() from error
            self._lost = True
            raise self._lost_error() from error
        except OSError as error:
            cause = f"the ssh program cannot be run: {error.strerror or error}"
            raise ConnectError(cause, hop=self.hops[-1].label, remedy="Try again.") from error
        with self._lock:
            self._streams = {one for one in self._streams if not one.closed} | {stream}
        return stream

    def _session(self, control: Path, command: str, timeout: float) -> CommandStream:
        """Run a command, once the server has opened a session for it. Raises SessionRefused, or NoSession."""
        ends = SessionEnds(self._program.session(control, command))
        stream = CommandStream(ends)
        try:
            ends.check_opened(timeout)
        except BaseException:
            stream.close()
            raise
        return stream
