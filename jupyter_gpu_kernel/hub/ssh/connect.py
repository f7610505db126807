"""Opens an SSH connection along a route of hops.

At each hop, `connect` opens a TCP connection or a channel of the previous hop, negotiates encryption, verifies the host
key and signs in. All of it blocks, on worker threads, and has a timeout. This module knows no kernels, no agent and no
kernelspecs.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import paramiko

from ...errors import ConnectError, GpuKernelError, RouteError
from ..sanitize import one_line
from . import Asker, hostkeys, tcp
from .algorithms import Algorithms
from .auth import sign_in
from .connection import SSHConnection
from .deadline import Deadline, TimedAsker
from .failures import forwarding_refused, no_greeting, unreachable
from .restrictions import unsupported
from .route import Hop
from .transport import WINDOW, BufferedSocket, Transport

Progress = Callable[[str, str], None]
_MAX_ATTEMPTS = 6


def connect(
    route: Sequence[Hop],
    *,
    ask: Asker | None,
    progress: Progress = lambda hop, step: None,
    timeout: float = 25.0,
    trust_file: Path,
    begun: SSHConnection | None = None,
) -> SSHConnection:
    """Connect along the whole route. Raises ConnectError, HostKeyError or AuthError with the hop that failed.

    `timeout` (s) is for all hops together, without the time that the user takes to answer. Without `ask`, unknown
    host keys and password prompts are errors. Host keys that the user accepts are written to `trust_file`.
    `progress(hop, step)` is called as each step begins: "reach", "host key", "sign in". `begun`: a connection to the
    first hops, which becomes that to the whole route.
    """
    if not route or any(hop.kind != "ssh" for hop in route):
        raise RouteError("this route does not consist of SSH hops", hop=route[0].label if route else "")
    deadline = Deadline(timeout)
    asker = TimedAsker(ask, deadline) if ask else None
    connector = _Connector(begun or SSHConnection(), deadline, asker, progress, trust_file)
    try:
        for hop in route:  # an impossible configuration must be reported before the user types a code
            for directive in hop.restrictions.unsupported:
                raise unsupported(directive, hop.label)
            if hop.proxy_command:
                raise unsupported(f"ProxyCommand {hop.proxy_command}", hop.label)
        for hop in route[len(connector.connection.hops) :]:
            connector.connect_hop(hop)
    except BaseException:
        connector.connection.close()
        raise
    return connector.connection


class _Connector:
    """One call of `connect` in progress. `connection` gains a transport per hop."""

    def __init__(
        self,
        connection: SSHConnection,
        deadline: Deadline,
        ask: TimedAsker | None,
        progress: Progress,
        trust_file: Path,
    ) -> None:
        self.connection = connection
        self.deadline, self.ask, self.progress, self.trust_file = deadline, ask, progress, trust_file

    def connect_hop(self, hop: Hop) -> None:
        """Connect to `hop` from the previous hop, or from this machine."""
        before = self.connection.last_transport
        if before is not None:
            self.connection.enable_tcp_nodelay()
        ask = self.ask if hop.restrictions.asks else None
        entries = hostkeys.lookup(hop, self.trust_file)
        wanted = hop.restrictions.algorithms.offering(hostkeys.offer(entries))
        with self._step(hop, "reach"):
            transport = self._reach(hop, before, wanted)
        self.connection.add(hop, transport)
        with self._step(hop, "host key"):
            key = transport.get_remote_server_key()
            if key.get_name() == "ssh-rsa":
                hostkeys.check_rsa_size(hop, key.get_bits())
            confirm = ask.confirm_host if ask else None
            hostkeys.verify(hop, key.get_name(), key.asbytes(), entries, self.trust_file, confirm)
            if hop.restrictions.check_address and before is None:
                hostkeys.verify_address(hop, transport.getpeername()[0], key.asbytes(), self.trust_file)
        with self._step(hop, "sign in"), _ssh_errors(hop, transport):
            sign_in(transport, hop, ask, self.deadline.remaining)
        if ask is not None and ask.take_used():
            self.connection.mark_typed()

    @contextlib.contextmanager
    def _step(self, hop: Hop, step: str) -> Iterator[None]:
        if self.deadline.expired:
            cause = "timed out before this hop was reached"
            raise ConnectError(cause, hop=hop.label, remedy="Try again in a few minutes.")
        self.progress(hop.label, step)
        since = time.monotonic()
        try:
            yield
        except GpuKernelError as error:
            error.add_steps([*self.connection.steps, (hop.label, step, time.monotonic() - since)])
            raise
        self.connection.record_step(hop.label, step, time.monotonic() - since)

    def _reach(self, hop: Hop, before: Transport | None, wanted: Algorithms) -> Transport:
        """Return an encrypted connection. A server that closes it at once is overloaded: try again, with jitter."""
        for attempt in range(_MAX_ATTEMPTS):
            if attempt:
                time.sleep(self.deadline.remaining(random.uniform(0.1, 0.5) * 2**attempt))
            sock = self._open_channel(hop, before) if before else self._open_tcp(hop)
            transport = Transport(sock, wanted)
            try:
                with _ssh_errors(hop, transport):
                    self._handshake(hop, transport, first=attempt == 0)
                return transport
            except _ServerBusy:
                transport.close()
            except BaseException:
                transport.close()
                raise
            if self.deadline.expired:
                break
        raise no_greeting(hop)

    def _handshake(self, hop: Hop, transport: Transport, first: bool) -> None:
        """Exchange keys. The user was asked for nothing so far, so a connection that ends without a reason may be tried
        again: several times before the server's version string (it is overloaded), once in the key exchange."""
        try:
            transport.start_client(timeout=self.deadline.remaining(hop.connect_timeout))
            transport.get_remote_server_key()
        except (OSError, EOFError) as error:
            if first or not transport.remote_version:
                raise _ServerBusy from error
            raise

    def _open_tcp(self, hop: Hop) -> BufferedSocket:
        try:
            within = self.deadline.remaining(hop.connect_timeout)
            sock = tcp.dial(hop.host, hop.port, within, hop.restrictions.family, hop.restrictions.bind)
            return BufferedSocket(sock)
        except OSError as error:
            raise unreachable(hop, _reason(error), "") from error

    def _open_channel(self, hop: Hop, before: Transport) -> BufferedSocket:
        end = time.monotonic() + self.deadline.remaining(hop.connect_timeout)
        wait = tcp.RETRY_AFTER  # longer each time, in case the jump host waits for a slow name server
        while True:
            left = max(end - time.monotonic(), 0.05)
            try:
                with tcp.quick_acknowledgements(before.socket.source):
                    channel = before.open_channel(
                        "direct-tcpip",
                        (hop.host, hop.port),
                        ("127.0.0.1", 0),
                        window_size=WINDOW,
                        timeout=min(wait, left),
                    )
                return BufferedSocket(channel, WINDOW)
            except (paramiko.SSHException, OSError, EOFError) as error:
                if left <= wait or not before.is_active() or isinstance(error, paramiko.ChannelException):
                    raise self._channel_error(hop, before, error) from error
            wait *= 2

    def _channel_error(self, hop: Hop, before: Transport, error: Exception) -> ConnectError:
        jump = self.connection.hops[-1].label
        if isinstance(error, paramiko.ChannelException) and error.code == 1:
            return forwarding_refused(hop, jump)
        if isinstance(error, paramiko.ChannelException):
            return unreachable(hop, before.channel_error or error.text, jump)
        if before.is_active():
            return unreachable(hop, "timed out", jump)
        return ConnectError("the connection was lost", hop=jump, remedy="Check the network and try again.")


# --- error messages


class _ServerBusy(Exception):
    """The server sent no version string, or the connection ended without a reason."""


@contextlib.contextmanager
def _ssh_errors(hop: Hop, transport: Transport) -> Iterator[None]:
    """Turn exceptions of paramiko into our errors."""
    try:
        yield
    except paramiko.ssh_exception.IncompatiblePeer as error:
        why = "; ".join(transport.mismatches()) or one_line(str(error))
        raise ConnectError(
            f"no common SSH algorithm ({why})",
            hop=hop.label,
            remedy="Ask its administrators to enable one of the algorithms that this package supports.",
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        if str(error).startswith("Error reading SSH protocol banner") and "without end" not in str(error):
            raise _ServerBusy from error
        cause = (
            one_line(str(error)) if isinstance(error, paramiko.SSHException) else "the connection was lost"
        )
        if cause == "No existing session":  # start_client returns without an error when it has timed out
            if not transport.remote_version:
                raise _ServerBusy from error
            cause = "timed out in the SSH key exchange"
        raise ConnectError(cause, hop=hop.label, remedy="Check the network and try again.") from error


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "name not known"
    if isinstance(error, TimeoutError):
        return "timed out"
    return error.strerror or str(error)
