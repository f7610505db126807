"""What the connections of both transports have in common: their hops, sessions that a server refuses for a moment, and
short commands."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from subprocess import CompletedProcess

from ...errors import ConnectError
from ..sanitize import one_line
from ..transport.short_command import run_to_end
from ..transport.stream import CommandStream
from .route import Hop

_MAX_COMMANDS = 4  # short commands at a time; a server allows 10 sessions per connection (MaxSessions)
OPEN_TIMEOUT = 20.0
"""Seconds for the server to open a session."""
_SESSION_RETRY = 2.0  # seconds in which a refused session is asked for again


class SessionRefused(Exception):
    """The server refused a session."""


class RouteConnection(ABC):
    """A connection through one or more hops."""

    def __init__(self, transport: str) -> None:
        self.transport = transport
        """What speaks SSH, and why, in words."""
        self.steps: list[tuple[str, str, float]] = []
        """(hop, step, seconds) of each step of connecting, in order."""
        self.closed = False
        """Whether `close` was called."""
        self.host_keys: list[tuple[str, str]] = []
        """(hop, fingerprint) of each hop's verified host key, in order; "" if only ssh knows the fingerprint."""
        self.hops: list[Hop] = []
        self._typed = 0  # the number of hops up to the last one for which the user typed a secret
        self._lock = threading.Lock()
        self._short_commands = threading.BoundedSemaphore(_MAX_COMMANDS)

    @property
    def interactive(self) -> bool:
        """Whether the user typed a secret for it: it cannot be opened again without the user."""
        return self._typed > 0

    @abstractmethod
    def alive(self) -> bool:
        """Whether every hop still looks connected. A connection that died silently is found out by `responds` only."""

    @abstractmethod
    def responds(self, within: float) -> bool:
        """Whether the last hop opens a session, or refuses to, within so many seconds. Blocks."""

    @abstractmethod
    def close(self) -> None:
        """Close all hops that no other connection uses."""

    def open(self, command: str) -> CommandStream:
        """Run `command` in the last hop's login shell; return its stdin and stdout as a stream.

        Raises ConnectError if the connection is broken, or the host refuses or does not answer in time.
        """
        return self._open(command, OPEN_TIMEOUT)

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> CompletedProcess[bytes]:
        """Run a short command. Raises ConnectError if it does not end within `timeout` (s), or the connection breaks.

        The return code is -1 if the server did not report one; stderr is the last 64 KiB."""
        with self._short_commands:
            stream = self._open(self._short(command), min(timeout, OPEN_TIMEOUT))
            done = run_to_end(stream, stdin, timeout, self.hops[-1].label, command)
        if done.returncode in (-1, 255) and not self.alive():  # 255 is the ssh program's own status
            raise self._lost_error()
        return done

    def _short(self, command: str) -> str:
        """Return what is run for a short command."""
        return command

    @abstractmethod
    def _start(self, command: str, timeout: float) -> CommandStream:
        """Run a command in a new session. Raises SessionRefused, or ConnectError."""

    def _open(self, command: str, timeout: float) -> CommandStream:
        end = time.monotonic() + timeout
        patience = min(time.monotonic() + _SESSION_RETRY, end)
        while True:
            try:
                return self._start(command, max(end - time.monotonic(), 0.05))
            except SessionRefused as error:
                # The server may not have released yet a session that we have just closed.
                if time.monotonic() > patience:
                    raise ConnectError(
                        f"refused another session on this connection (MaxSessions): {one_line(str(error))}",
                        hop=self.hops[-1].label,
                        remedy="Close other uses of this connection, or ask its administrators for a higher limit.",
                    ) from error
                time.sleep(0.05)

    def _lost_error(self) -> ConnectError:
        return ConnectError(
            "the connection was lost", hop=self.hops[-1].label, remedy="Check the network and try again."
        )

    def _timeout_error(self) -> ConnectError:
        return ConnectError("timed out", hop=self.hops[-1].label, remedy="Check the network and try again.")
