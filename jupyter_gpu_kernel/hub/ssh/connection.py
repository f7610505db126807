"""An open SSH connection of one or more hops: runs commands and opens byte streams on the last hop.

`connect.py` makes it, and adds one transport per hop. Connections whose routes begin alike can share the first hops.
This module knows no keys and no meaning of the bytes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from subprocess import CompletedProcess

import paramiko

from ...errors import ConnectError
from ..transport.short_command import run_to_end
from ..transport.stream import CommandStream
from . import tcp
from .channel import ChannelEnds
from .hostkeys import fingerprint
from .route import Hop, begins_with
from .transport import WINDOW, Transport

_MAX_COMMANDS = 4  # short commands at a time; a server allows 10 sessions per connection (MaxSessions)
_OPEN_TIMEOUT = 20.0  # seconds for the server to open a session
_SESSION_RETRY = 2.0  # seconds in which a refused session is asked for again
_sharing = threading.Lock()  # while it changes who uses a hop


class SSHConnection:
    """A connection through one or more hops."""

    transport = "paramiko"
    """What speaks SSH."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str, float]] = []
        """(hop, step, seconds) of each step of connecting, in order."""
        self.closed = False
        """Whether `close` was called."""
        self.host_keys: list[tuple[str, str]] = []
        """(hop, fingerprint) of each hop's verified host key, in order."""
        self.hops: list[Hop] = []
        self._typed = 0  # the number of hops up to the last one for which the user typed a secret
        self._transports: list[Transport] = []
        # An open channel must not be garbage-collected: its finalizer would send.
        self._channels: set[paramiko.Channel] = set()
        self._lock = threading.Lock()
        self._short_commands = threading.BoundedSemaphore(_MAX_COMMANDS)

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
            channel = transport.open_session(timeout=_OPEN_TIMEOUT)
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
            stream = self._open(command, timeout)
            done = run_to_end(stream, stdin, timeout, self.hops[-1].label, command)
        if done.returncode < 0 and not self.alive():
            raise self._lost_error()
        return done

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

    def _open(self, command: str, timeout: float) -> CommandStream:
        channel = self._session(time.monotonic() + min(timeout, _OPEN_TIMEOUT))
        with self._lock:
            self._channels = {one for one in self._channels if not one.closed} | {channel}
        timer = threading.Timer(timeout, channel.close)  # exec_command has no timeout
        timer.daemon = True
        timer.start()
        try:
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._session_error(error) from error
        finally:
            timer.cancel()
        return CommandStream(ChannelEnds(channel))

    def _session(self, end: float) -> paramiko.Channel:
        patience = min(time.monotonic() + _SESSION_RETRY, end)
        while True:
            try:
                return self._transports[-1].open_session(WINDOW, timeout=max(end - time.monotonic(), 0.05))
            except paramiko.ChannelException as error:
                # The server may not have released yet a session that we have just closed.
                if time.monotonic() > patience:
                    raise ConnectError(
                        f"refused another session on this connection (MaxSessions): {error.text}",
                        hop=self.hops[-1].label,
                        remedy="Close other uses of this connection, or ask its administrators for a higher limit.",
                    ) from error
                time.sleep(0.05)
            except (paramiko.SSHException, OSError, EOFError) as error:
                raise self._session_error(error) from error

    def _session_error(self, error: Exception) -> ConnectError:
        if not self.alive():
            return self._lost_error()
        if str(error) == "Timeout opening channel.":
            return ConnectError(
                "timed out", hop=self.hops[-1].label, remedy="Check the network and try again."
            )
        return ConnectError(
            f"does not run commands: {error}",
            hop=self.hops[-1].label,
            remedy="Try `ssh HOST true` by hand.",
        )

    def _lost_error(self) -> ConnectError:
        return ConnectError(
            "the connection was lost", hop=self.hops[-1].label, remedy="Check the network and try again."
        )
