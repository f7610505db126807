"""The one SSH connection to a node that all its users share: opened when needed, and replaced when it is dead.

Everything here blocks, and runs on worker threads. This module knows no agent, no link and no kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from ...errors import ConnectError, GpuKernelError
from ..kernel_settings import KernelSettings
from ..rpc import Call
from ..ssh import CONNECT_WITHIN, Attempt
from ..transport.connection import Connection

T = TypeVar("T")
_MAX_COMMAND = 60
"""Characters of a command in messages."""
_MAX_DESCRIPTION = 1000
"""Characters of a connection in a kernel's log."""
RESPONSE_TIMEOUT = 2.0
"""Seconds within which a connection must show that it is alive."""


class RouteSettings(NamedTuple):
    """The settings that determine the route to a node. Equal ones share a connection."""

    route: tuple[str, ...]
    identity: tuple[str, ...]
    config: str | None
    via: tuple[str, ...] = ()
    transport: str = "auto"

    @classmethod
    def from_settings(cls, settings: KernelSettings) -> RouteSettings:
        """Select the settings of the route from a kernel's settings."""
        config = settings.config or None
        return cls(settings.route, settings.identity, config, settings.via, settings.transport)

    def to_settings(self) -> KernelSettings:
        """Return a kernel's settings for this route."""
        return KernelSettings(**{**self._asdict(), "config": self.config or ""})

    @property
    def name(self) -> str:
        """The node as the user wrote it."""
        return hop_names(self.route[-1], self.via)[-1]


def hop_names(host: str, commands: Sequence[str]) -> list[str]:
    """Return what messages call the last host of a route, and each command that leads on from there."""
    names = [host]
    for command in commands:
        shown = command if len(command) <= _MAX_COMMAND else f"{command[: _MAX_COMMAND - 1]}…"
        names.append(f"{shown} on {names[-1]}")
    return names


Connect = Callable[[RouteSettings, Attempt], Connection]
"""Connects to the last host of a route; blocks. All connections of the hub come from here. Raises GpuKernelError if a
host cannot be reached or refuses the sign-in."""


class SharedConnection:
    """`run(call, work)` calls `work` with the connection. With `asks` False the user is never asked for anything."""

    def __init__(self, settings: RouteSettings, connect: Connect, asks: bool = True) -> None:
        self._settings, self._name = settings, settings.name
        self._open_connection = connect
        self._asks = asks
        self.problem: GpuKernelError | None = None
        """Why the last attempt to connect failed, if it did."""
        self._failed_call: Call | None = None
        """The call for which the last attempt failed, if the call waits only for a short time (`Call.within`)."""
        self._failures = 0
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether the connection is open, as far as this end can tell."""
        return self._connection is not None and self._connection.alive()

    @property
    def interactive(self) -> bool:
        """Whether the user typed a secret for this connection."""
        return self._connection is not None and self._connection.interactive

    @property
    def host_key(self) -> str:
        """The fingerprint of the node's host key, "SHA256:…"; "" if it is not known."""
        keys = self._connection.host_keys if self._connection is not None else []
        return keys[-1][1] if keys and not self._settings.via else ""

    def run(
        self,
        call: Call | None,
        work: Callable[[Connection], T],
        *,
        proven: bool = False,
        close_on_failure: bool = False,
    ) -> T:
        """Return `work(connection)`. If an existing connection turns out to be dead, or was closed by another of its
        users, repeat the work over a new one.

        `call` receives progress and is asked for secrets. `proven`: something was received over the connection just
        now. `close_on_failure`: close a connection over which the work fails, unless the user typed a secret for it,
        because the server may refuse a session on this connection only.
        """
        connection, fresh = self._get(call, proven)
        try:
            return work(connection)
        except (GpuKernelError, OSError) as raised:
            error = (
                raised if isinstance(raised, GpuKernelError) else ConnectError(str(raised), hop=self._name)
            )
            final = fresh and not connection.closed  # by another of its users
            if close_on_failure and not connection.interactive and isinstance(error, ConnectError):
                connection.close()
            if not _is_dead(connection):
                raise error from None
            if not connection.interactive:  # else the next one uses its first hops, if these are open
                connection.close()
            if final:
                raise error from None
        return work(self._get(call, False)[0])

    def close_if_silent(self) -> None:
        """Close a connection that does not respond, unless the user typed a secret for it: that one may recover, and
        cannot be opened again without the user."""
        connection = self._connection
        if (
            connection is not None
            and not connection.interactive
            and not connection.responds(RESPONSE_TIMEOUT)
        ):
            connection.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()

    def _get(self, call: Call | None, proven: bool) -> tuple[Connection, bool]:
        """Return the connection, and whether it was opened just now."""
        failures = self._failures
        with self._lock:
            if call is not None and call.abandoned:  # while others have tried to connect, one after another
                raise ConnectError("nobody waits for the connection any more", hop=self._name)
            ask = call if call is not None and call.asks and self._asks else None
            existing = self._connection
            if existing is not None:
                if self._is_usable(existing, ask is not None, proven):
                    return existing, False
                if not existing.interactive:
                    existing.close()
            if call is not None and self.problem is not None:
                failed_meanwhile = call.is_watch and self._failures > failures
                if failed_meanwhile or call is self._failed_call:  # which asks several things of this node
                    raise self.problem
            try:
                self._connection = self._connect(ask, call)
            except GpuKernelError as error:
                self.problem = error
                self._failures += 1
                self._failed_call = call if call is not None and call.within is not None else None
                raise
            if existing is not None:
                existing.close()  # the new one may use its first hops
            self.problem = self._failed_call = None
            return self._connection, True

    def _connect(self, ask: Call | None, call: Call | None) -> Connection:
        attempt = Attempt() if call is None else Attempt(ask, call.progress, call.within or CONNECT_WITHIN)
        return self._open_connection(self._settings, attempt)

    @staticmethod
    def _is_usable(connection: Connection, can_ask: bool, proven: bool) -> bool:
        """Whether to go on with a connection. A silent one that nobody can open again now is used all the same."""
        if not connection.alive():
            return False
        if not can_ask and (proven or connection.interactive):
            return True
        return connection.responds(RESPONSE_TIMEOUT)


def describe(connection: Connection, settings: RouteSettings) -> str:
    """Return what speaks SSH for a connection, the verified host keys, and the commands that lead on, in words."""
    by = f"by {connection.transport}" if connection.transport else "on this machine"
    keys = ", ".join(f"of {hop}: {key or 'verified by ssh'}" for hop, key in connection.host_keys)
    via = f"; then by {settings.name}" if settings.via else ""
    return f"{by}{'; host key ' if keys else ''}{keys}{via}"[:_MAX_DESCRIPTION]


def _is_dead(connection: Connection) -> bool:
    if not connection.alive():
        return True
    return not connection.interactive and not connection.responds(RESPONSE_TIMEOUT)
