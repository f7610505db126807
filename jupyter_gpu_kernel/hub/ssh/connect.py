"""Connects along a route with paramiko.

At each hop, a TCP connection or a channel of the previous hop is opened, encryption is negotiated, the host key is
verified, and the user is signed in.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial

import paramiko

from ...errors import ConnectError, RouteError
from ..sanitize import one_line
from ..transport.stream import return_within
from . import hostkeys
from .config.reasons import refused
from .config.route import Hop
from .failures import NoCommonAlgorithm, forwarding_refused, lost, no_greeting, unreachable
from .paramiko_hop import ParamikoHop
from .route_connection import Connector, ServerBusy
from .sign_in.auth import sign_in
from .sign_in.deadline import TimedAsker, Turns
from .transport import WINDOW, BufferedSocket, Transport

_MAX_SHOWN = 300  # characters of a directive in a message
RETRY_AFTER = 3.0
"""Seconds until an attempt is started again: the system repeats a lost SYN packet only after 1, 3, 7 and 15 s, and the
network may be back in between."""
_SHORTEST = 1.0  # seconds of an attempt, if that many remain: on a long path the answer takes some hundred milliseconds


def dial(host: str, port: int, timeout: float) -> socket.socket:
    """Return a connected and tuned TCP socket. Raises OSError. The addresses of the host are tried in turn, for some
    seconds each, so that a dead one does not use up the time, unless that is very short."""
    end = time.monotonic() + timeout
    while True:
        remaining = max(end - time.monotonic(), 0.05)
        each = min(max(remaining / 2, _SHORTEST), remaining, RETRY_AFTER)
        try:
            sock = return_within(remaining, partial(socket.create_connection, (host, port), each))
        except UnicodeError as error:
            raise socket.gaierror(str(error)) from error
        except TimeoutError:
            if time.monotonic() >= end:
                raise
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock


class ParamikoConnector(Connector):
    """Connects with paramiko."""

    def connect(self, route: Sequence[Hop], turns: Turns, since: int) -> None:
        """Connect as `Connector` does. An impossible configuration is reported before the user types a code."""
        for hop in route:
            for directive in refused(hop):
                cause = f"{directive[:_MAX_SHOWN]} in the ssh configuration is not supported by the transport paramiko"
                remedy = "Use the system's ssh program (--transport ssh), or remove it for this host."
                raise RouteError(cause, hop=hop.label, remedy=remedy)
        super().connect(route, turns, since)

    def _connect_hop(self, hop: Hop, ask: TimedAsker | None) -> None:
        before = self._last_transport
        entries = hostkeys.lookup(hop, self.trust_file)
        with self.step(hop, "reach"):
            transport = self._reach(hop, before, hostkeys.offer(entries))
        self.connection.add(hop, ParamikoHop(transport))
        with self.step(hop, "host key"):
            key = transport.get_remote_server_key()
            if key.get_name() == "ssh-rsa":
                hostkeys.check_rsa_size(hop, key.get_bits())
            confirm = ask.confirm_host if ask else None
            hostkeys.verify(hop, key.get_name(), key.asbytes(), entries, self.trust_file, confirm)
        with self.step(hop, "sign in"), _ssh_errors(hop, transport):
            sign_in(transport, hop, ask, self.deadline.remaining)

    @property
    def _last_transport(self) -> Transport | None:
        last = self.connection.opened[-1] if self.connection.opened else None
        return last.transport if isinstance(last, ParamikoHop) else None

    def _reach(self, hop: Hop, before: Transport | None, host_keys: Sequence[str]) -> Transport:
        """Return an encrypted connection."""

        def reach() -> Transport:
            sock = self._open_channel(hop, before) if before else self._open_tcp(hop)
            transport = Transport(sock, host_keys)
            try:
                with _ssh_errors(hop, transport):
                    self._handshake(hop, transport)
            except BaseException:
                transport.close()
                raise
            return transport

        return self._repeated(reach)

    def _handshake(self, hop: Hop, transport: Transport) -> None:
        """Exchange keys. The user was asked for nothing so far, so this may be repeated."""
        try:
            transport.start_client(timeout=self.deadline.remaining(hop.connect_timeout))
            transport.get_remote_server_key()
        except (OSError, EOFError) as error:
            raise ServerBusy(hop, greeted=bool(transport.remote_version)) from error

    def _open_tcp(self, hop: Hop) -> BufferedSocket:
        try:
            within = self.deadline.remaining(hop.connect_timeout)
            return BufferedSocket(dial(hop.host, hop.port, within))
        except OSError as error:
            raise unreachable(hop, _reason(error), "") from error

    def _open_channel(self, hop: Hop, before: Transport) -> BufferedSocket:
        """Return a channel of the previous hop. If no answer comes, the channel is requested again, as a TCP connection
        is, after a longer while each time: the previous hop may wait for a slow name server."""
        end = time.monotonic() + self.deadline.remaining(hop.connect_timeout)
        target, origin, wait = (hop.host, hop.port), ("127.0.0.1", 0), RETRY_AFTER
        while True:
            remaining = max(end - time.monotonic(), 0.05)
            within = min(wait, remaining)
            try:
                channel = before.open_channel(
                    "direct-tcpip", target, origin, window_size=WINDOW, timeout=within
                )
                return BufferedSocket(channel, WINDOW)
            except (paramiko.SSHException, OSError, EOFError) as error:
                refused = isinstance(error, paramiko.ChannelException)
                if refused or within == remaining or not before.is_active():
                    raise self._channel_error(hop, before, error) from error
            wait *= 2

    def _channel_error(self, hop: Hop, before: Transport, error: Exception) -> ConnectError:
        jump = self.connection.label
        if isinstance(error, paramiko.ChannelException) and error.code == 1:
            return forwarding_refused(hop, jump)
        if isinstance(error, paramiko.ChannelException):
            return unreachable(hop, before.channel_error or error.text, jump)
        if before.is_active():
            return unreachable(hop, "timed out", jump)
        return lost(jump)


# --- error messages


@contextlib.contextmanager
def _ssh_errors(hop: Hop, transport: Transport) -> Iterator[None]:
    """Turn exceptions of paramiko into errors of this package."""
    try:
        yield
    except paramiko.ssh_exception.IncompatiblePeer as error:
        raise NoCommonAlgorithm(
            f"no common SSH algorithm ({one_line(str(error))})",
            hop=hop.label,
            remedy="Use the system's ssh program (--transport ssh), which has more of them.",
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        if str(error).startswith("Error reading SSH protocol banner") and "without end" not in str(error):
            raise ServerBusy(hop, greeted=False) from error
        cause = (
            one_line(str(error)) if isinstance(error, paramiko.SSHException) else "the connection was lost"
        )
        if cause == "No existing session":  # start_client returns without an error when it has timed out
            if not transport.remote_version:
                raise no_greeting(hop) from error
            cause = "timed out in the SSH key exchange"
        raise ConnectError(cause, hop=hop.label, remedy="Check the network and try again.") from error


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "name not known"
    if isinstance(error, TimeoutError):
        return "timed out"
    return error.strerror or str(error)
