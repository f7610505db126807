"""The way to a work node, hop by hop. With `transport`, `auth` and `connection` the only user of paramiko.

`connect` walks a route: reach, verify the host key, sign in, and go on through a channel of that hop. What
comes out can run commands and open streams on the last hop. Threads only, and everything has a timeout. Knows
nothing of kernels, our own agent or kernelspecs.
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
from ..inert import one_line
from . import algorithms, hostkeys, tcp
from .algorithms import Algorithms
from .auth import Asker, sign_in
from .connection import Completed, SSHConnection, Stream
from .destination import read_word
from .packets import WINDOW
from .route import Hop
from .transport import JumpSocket, Transport

__all__ = ["Asker", "Completed", "SSHConnection", "Stream", "connect"]

Progress = Callable[[str, str], None]
_RETRIES = 6


class _Clock:
    """The time left for the whole way; stands still while the owner types."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self, most: float | None = None) -> float:
        """Seconds, never less than a moment: whoever waits that long finds out by himself that time is up."""
        left = max(self._end - time.monotonic(), 0.05)
        return left if most is None else min(left, most)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._end

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        since = time.monotonic()
        try:
            yield
        finally:
            self._end += time.monotonic() - since


class _PatientAsker:
    """An asker whose thinking time is not counted."""

    def __init__(self, ask: Asker, clock: _Clock) -> None:
        self._ask, self._clock = ask, clock
        self.asked = False

    def secret(self, hop: str, prompt: str) -> str:
        self.asked = True
        with self._clock.stopped():
            return self._ask.secret(hop, prompt)

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        with self._clock.stopped():
            return self._ask.confirm_host(hop, fingerprint, key_type)


def connect(
    route: Sequence[Hop],
    *,
    ask: Asker | None,
    progress: Progress = lambda hop, step: None,
    timeout: float = 25.0,
    trust_file: Path,
) -> SSHConnection:
    """Go the whole route. ConnectError, HostKeyError and AuthError name the hop that stopped us.

    `timeout` (s) is for all hops together, without the owner's time to answer. Without `ask` nobody is asked:
    unknown hosts and password prompts are errors. Host keys the owner accepts go to `trust_file`.
    `progress` hears (hop, step) as each step begins: "reach", "host key", "sign in".
    """
    if not route or any(hop.kind != "ssh" for hop in route):
        raise RouteError("this route is not made of SSH hops", hop=route[0].label if route else "")
    for hop in route:  # what can never be must not be found out behind a code that the owner typed
        algorithms.permitted(hop.restrictions, hostkeys.offer(()), hop.label)
    clock = _Clock(timeout)
    asker = _PatientAsker(ask, clock) if ask else None
    walk = _Walk(clock, asker, progress, trust_file)
    try:
        for hop in route:
            walk.step_to(hop)
    except BaseException:
        walk.connection.close()
        raise
    if asker is not None and asker.asked:
        walk.connection.keep_waiting()
    return walk.connection


class _Walk:
    """One `connect` under way. `connection` grows by a transport per hop."""

    def __init__(self, clock: _Clock, ask: Asker | None, progress: Progress, trust_file: Path) -> None:
        self.clock, self.ask, self.progress, self.trust_file = clock, ask, progress, trust_file
        self.connection = SSHConnection()

    def step_to(self, hop: Hop) -> None:
        """From the hop before (or from here) to `hop`."""
        before = self.connection.last_transport
        if before is not None:
            self.connection.nudge()
        ask = self.ask if hop.restrictions.asks else None
        entries = hostkeys.lookup(hop, self.trust_file)
        wanted = algorithms.permitted(hop.restrictions, hostkeys.offer(entries), hop.label)
        with self._timed(hop, "reach"):
            transport = self._reach(hop, before, wanted)
        self.connection.add(hop.label, transport)
        with self._timed(hop, "host key"):
            key = transport.get_remote_server_key()
            confirm = ask.confirm_host if ask else None
            hostkeys.verify(hop, key.get_name(), key.asbytes(), entries, self.trust_file, confirm)
            if hop.restrictions.check_address and before is None:
                hostkeys.verify_address(hop, transport.getpeername()[0], key.asbytes(), self.trust_file)
        with self._timed(hop, "sign in"), _explained(hop, transport):
            sign_in(transport, hop, ask, self.clock.left)

    @contextlib.contextmanager
    def _timed(self, hop: Hop, step: str) -> Iterator[None]:
        if self.clock.over:
            raise ConnectError(
                "the time was over before this hop", hop=hop.label, remedy="Try again in a while."
            )
        self.progress(hop.label, step)
        since = time.monotonic()
        try:
            yield
        except GpuKernelError as error:
            error.steps = [*self.connection.hops, (hop.label, step, time.monotonic() - since)]
            raise
        self.connection.hops.append((hop.label, step, time.monotonic() - since))

    def _reach(self, hop: Hop, before: Transport | None, wanted: Algorithms) -> Transport:
        """An encrypted connection. A server that hangs up unasked is busy: try again, with jitter."""
        for attempt in range(_RETRIES):
            if attempt:
                time.sleep(self.clock.left(random.uniform(0.1, 0.5) * 2**attempt))
            sock = self._through(hop, before) if before else self._direct(hop)
            transport = Transport(sock, wanted, self.clock.left())
            try:
                with _explained(hop, transport):
                    self._shake_hands(transport, first=attempt == 0)
                return transport
            except _Busy:
                transport.close()
            except BaseException:
                transport.close()
                raise
            if self.clock.over:
                break
        raise ConnectError(
            "accepts the connection, but does not greet us as an SSH server does",
            hop=hop.label,
            remedy="Its SSH server may be overloaded (MaxStartups) or hang: try again in a while.",
        )

    def _shake_hands(self, transport: Transport, first: bool) -> None:
        """Nobody was asked for anything yet, so a connection that ends without a reason may be made anew: as often as a
        busy server's before its greeting, once in the key exchange."""
        try:
            transport.start_client(timeout=self.clock.left())
            transport.get_remote_server_key()
        except (OSError, EOFError) as error:
            if first or not transport.remote_version:
                raise _Busy from error
            raise

    def _direct(self, hop: Hop) -> socket.socket:
        try:
            within = self.clock.left(hop.connect_timeout)
            return tcp.dial(hop.host, hop.port, within, hop.restrictions.family, hop.restrictions.bind)
        except OSError as error:
            raise _unreachable(hop, _reason(error), "") from error

    def _through(self, hop: Hop, before: Transport) -> JumpSocket:
        end = time.monotonic() + self.clock.left(hop.connect_timeout)
        patience = tcp.ANEW  # as there; longer each time, where it is a slow name server that one waits for
        while True:
            left = max(end - time.monotonic(), 0.05)
            try:
                with tcp.acknowledging(before.sock):
                    channel = before.open_channel(
                        "direct-tcpip",
                        (hop.host, hop.port),
                        ("127.0.0.1", 0),
                        window_size=WINDOW,
                        timeout=min(patience, left),
                    )
                return JumpSocket(channel)
            except (paramiko.SSHException, OSError, EOFError) as error:
                if left <= patience or not before.is_active() or isinstance(error, paramiko.ChannelException):
                    raise self._no_way(hop, before, error) from error
            patience *= 2

    def _no_way(self, hop: Hop, before: Transport, error: Exception) -> ConnectError:
        jump = self.connection.labels[-1]
        if isinstance(error, paramiko.ChannelException) and error.code == 1:
            return ConnectError(
                f"does not allow connections through it to {hop.label} (AllowTcpForwarding or PermitOpen)",
                hop=jump,
                remedy="Ask its administrators, or use another login node as the jump host.",
            )
        if isinstance(error, paramiko.ChannelException):
            return _unreachable(hop, before.refusal or error.text, jump)
        if before.is_active():
            return _unreachable(hop, "timed out", jump)
        return ConnectError("the connection was lost", hop=jump, remedy="Check the network and try again.")


# --- failures, in words


class _Busy(Exception):
    """The server hung up before its greeting or never sent it, or the connection ended without a reason."""


@contextlib.contextmanager
def _explained(hop: Hop, transport: Transport) -> Iterator[None]:
    """Turn what paramiko raises into our errors."""
    try:
        yield
    except paramiko.ssh_exception.IncompatiblePeer as error:
        why = "; ".join(transport.disagreements()) or one_line(str(error))
        raise ConnectError(
            f"its SSH server and we have nothing in common ({why})",
            hop=hop.label,
            remedy="Its administrators can allow one of ours; a way through the system's ssh is planned.",
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        if str(error).startswith("Error reading SSH protocol banner") and "without end" not in str(error):
            raise _Busy from error
        cause = (
            one_line(str(error)) if isinstance(error, paramiko.SSHException) else "the connection was lost"
        )
        if cause == "No existing session":  # start_client returns in silence when its time is over
            if not transport.remote_version:
                raise _Busy from error
            cause = "does not answer (timed out in the key exchange)"
        raise ConnectError(cause, hop=hop.label, remedy="Check the network and try again.") from error


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "name not known"
    if isinstance(error, TimeoutError):
        return "timed out"
    return error.strerror or str(error)


def _unreachable(hop: Hop, reason: str, jump: str) -> ConnectError:
    """`reason` is the system's, here or on the jump host. The host is named where the hop's name is another one."""
    alias = hop.host != read_word(hop.label).host
    port, where = (
        f"{hop.host} port {hop.port}" if alias else f"port {hop.port}",
        f" from {jump}" if jump else "",
    )
    low = reason.lower()
    if any(word in low for word in ("name", "nodename", "getaddrinfo", "resolution")):
        cause = f"{f'the name {hop.host}' if alias else 'its name'} cannot be resolved{where}"
        remedy = "Check the spelling" + (
            ", or give its jump host with -J." if not jump else f"; {jump} must know it."
        )
    elif "refused" in low:
        cause, remedy = (
            f"{port} refuses the connection{where}",
            "Is the port right, and its SSH server running?",
        )
    elif "timed out" in low or "timeout" in low:
        cause = f"{port} does not answer{where} (timed out)"
        remedy = "The machine may be down, or a firewall or missing VPN in the way."
    elif "route" in low or "unreachable" in low:
        cause = f"there is no route to {hop.host if alias else 'it'}{where}"
        remedy = "Check the network, a VPN, or the jump hosts."
    else:
        cause, remedy = f"{port} cannot be reached{where}: {reason}", "Check the address and the network."
    return ConnectError(cause, hop=hop.label, remedy=remedy)
