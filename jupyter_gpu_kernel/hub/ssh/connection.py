"""An open SSH connection of one or more hops: runs commands and opens byte streams on the last hop.

`connect.py` makes it, and adds one transport per hop. Connections whose routes begin alike can share the first hops.
This module knows no keys and no meaning of the bytes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

import paramiko

from ...errors import ConnectError
from ..transport.stream import CommandStream
from . import tcp
from .channel import ChannelEnds
from .hostkeys import fingerprint
from .route import Hop, begins_with
from .route_connection import OPEN_TIMEOUT, RouteConnection, SessionRefused
from .transport import WINDOW, Transport

_sharing = threading.Lock()  # while it changes who uses a hop


class SSHConnection(RouteConnection):
    """A connection through one or more hops by paramiko."""

    def __init__(self) -> None:
        super().__init__("paramiko")
        self._transports: list[Transport] = []
        # An open channel must not be garbage-collected: its finalizer would send.
        self._channels: set[paramiko.Channel] = set()

    # --- for connect.py

    @property
    def last_transport(self) -> Transport | None:
        return self._transports[-1] if self._transports else None

    def share(self, route: Sequence[Hop]) -> SSHConnection | None:
        """Return a connection that uses the hops of this one up to the last for which the user typed a secret; None
        if there are none, if they have ended, or if the route begins with others."""
        shared = SSHConnection()
        with _sharing:
            hops, transports = self.hops[: self._typed], self._transports[: self._typed]
            active = not self.closed and all(one.is_active() for one in transports)
            if not hops or not active or not begins_with(route, hops):
                return None
            for hop, transport in zip(route, transports, strict=False):
                shared.add(hop, transport)
        shared._typed = self._typed
        return shared

    def add(self, hop: Hop, transport: Transport) -> None:
        """Add the next hop."""
        transport.users += 1
        self.hops.append(hop)
        self._transports.append(transport)
        self.host_keys.append((hop.label, fingerprint(transport.get_remote_server_key().asbytes())))

    def record_step(self, hop: str, step: str, seconds: float) -> None:
        """A step of connecting is done."""
        self.steps.append((hop, step, seconds))

    def enable_tcp_nodelay(self) -> None:
        """Run `true` on the last hop so far, without waiting: OpenSSH sets TCP_NODELAY only on connections that have
        had a session, and a mere jump host never has one. If the hop refuses, it is slower."""
        transport = self._transports[-1]
        threading.Thread(
            target=self._open_session_briefly, args=(transport,), name="ssh enable_tcp_nodelay", daemon=True
        ).start()

    def _open_session_briefly(self, transport: Transport) -> None:
        try:
            channel = transport.open_session(timeout=OPEN_TIMEOUT)
            with self._lock:
                self._channels.add(channel)
            channel.exec_command("true")
            channel.shutdown_write()
        except (paramiko.SSHException, OSError, EOFError):
            pass  # a forced command, nologin, MaxSessions: the connection works all the same

    def mark_typed(self) -> None:
        """The user typed a secret for the last hop so far: do not give the connection up after a silence."""
        self._typed = len(self.hops)
        tcp.disable_user_timeout(self._transports[0].socket.source)

    # --- for all users

    def alive(self) -> bool:
        """Whether every hop still looks connected. A connection that died silently is found out by `responds` only."""
        is_open = bool(self._transports) and not self.closed
        return is_open and all(transport.is_active() for transport in self._transports)

    def responds(self, within: float) -> bool:
        """Whether the last hop opens a session, or refuses to, within so many seconds. Blocks."""
        try:
            self._transports[-1].open_session(timeout=within).close()
        except paramiko.ChannelException:
            return True
        except (paramiko.SSHException, OSError, EOFError):
            return False
        return True

    def close(self) -> None:
        """Close all hops that no other connection uses, the first one first: the others may be blocked in sending
        through it. Through a hop that stays open they may be blocked for long, hence the thread."""
        with _sharing:
            if self.closed:
                return
            self.closed = True
            for transport in self._transports:
                transport.users -= 1
            unused = [transport for transport in self._transports if not transport.users]
        closer = threading.Thread(target=self._close_hops, args=(unused,), name="ssh close", daemon=True)
        closer.start()
        closer.join(None if len(unused) == len(self._transports) else 1.0)

    def _close_hops(self, unused: Sequence[Transport]) -> None:
        with self._lock:
            closing: list[Transport | paramiko.Channel] = [*unused, *self._channels]
        for one in closing:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # already closed
                one.close()

    def _start(self, command: str, timeout: float) -> CommandStream:
        end = time.monotonic() + timeout
        try:
            channel = self._transports[-1].open_session(WINDOW, timeout=timeout)
            with self._lock:
                self._channels = {one for one in self._channels if not one.closed} | {channel}
            stream = CommandStream(ChannelEnds(channel))
            with stream.closing_after(max(end - time.monotonic(), 0.05)):  # exec_command has no timeout
                channel.exec_command(command)
        except paramiko.ChannelException as error:
            raise SessionRefused(error.text) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._session_error(error) from error
        return stream

    def _session_error(self, error: Exception) -> ConnectError:
        if not self.alive():
            return self._lost_error()
        if str(error) == "Timeout opening channel.":
            return self._timeout_error()
        return ConnectError(
            f"does not run commands: {error}",
            hop=self.hops[-1].label,
            remedy="Try `ssh HOST true` by hand.",
        )
