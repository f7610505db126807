"""One SSH connection for all who use a node: made when it is needed, and replaced when it turns out to be dead.

Everything here blocks; it runs on worker threads. This file knows no agent, no link and no kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...errors import ConnectError, GpuKernelError
from ..rpc import Call
from ..ssh import connect, route
from ..ssh.connection import SSHConnection

T = TypeVar("T")
RESPONDS_WITHIN = 2.0
"""Seconds that a connection has to show that it is alive."""


class Way(NamedTuple):
    """What leads to a node; equal ways share a connection."""

    words: tuple[str, ...]
    identity: tuple[str, ...]
    config: str | None

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Way:
        """The way in a kernelspec's settings."""
        return cls(tuple(settings["route"]), tuple(settings.get("identity") or ()), settings.get("config"))

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that lead this way."""
        return {"route": list(self.words), "identity": list(self.identity), "config": self.config}


class SharedConnection:
    """`over(call, work)`. With `asks` False nobody is asked, whoever calls."""

    def __init__(self, way: Way, trust_file: Path, asks: bool = True) -> None:
        self._way = way
        self._trust_file = trust_file
        self._asks = asks
        self.problem: GpuKernelError | None = None
        """Why the last attempt to connect failed, if it did."""
        self._connection: SSHConnection | None = None
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether it is there, as far as can be told without asking its far end."""
        return self._connection is not None and self._connection.alive()

    @property
    def machine(self) -> str:
        """What the last machine's host key tells of it, "" before the first connection; see Connection."""
        return self._connection.machine_id if self._connection is not None else ""

    def over(
        self,
        call: Call | None,
        work: Callable[[SSHConnection], T],
        *,
        proven: bool = False,
        ends: bool = False,
    ) -> T:
        """`work(connection)`. If the connection that there was is found dead by that, or was closed by another user of
        it, once more over a new one.

        `call` hears progress, and is asked for secrets. `proven`: it was heard from just now. `ends`: a
        connection over which the work cannot be done is closed, unless its owner typed something for it: another one
        may be given the session that it is not.
        """
        connection, fresh = self._get(call, proven)
        try:
            return work(connection)
        except (GpuKernelError, OSError) as error:
            first = fresh and not connection.closed  # by another user of it
            if ends and not connection.interactive and isinstance(error, ConnectError | OSError):
                connection.close()
            if not _is_dead(connection):
                raise _as_ours(error, self._way) from None
            connection.close()
            if first:
                raise _as_ours(error, self._way) from None
        return work(self._get(call, False)[0])

    def hang_up_if_silent(self) -> None:
        """What its owner signed in for is given all the time it takes: it may come back, and cannot be made anew."""
        connection = self._connection
        if connection is not None and not connection.interactive and not connection.responds(RESPONDS_WITHIN):
            connection.close()

    def close(self) -> None:
        """Ends it, if there is one."""
        if self._connection is not None:
            self._connection.close()

    def _get(self, call: Call | None, proven: bool) -> tuple[SSHConnection, bool]:
        """The connection, and whether it was made just now."""
        with self._lock:
            ask = call if call is not None and call.asks and self._asks else None
            there = self._connection
            if there is not None:
                if self._is_usable(there, ask is not None, proven):
                    return there, False
                there.close()
            try:
                self._connection = self._connect(ask, call)
            except GpuKernelError as error:
                self.problem = error
                raise
            self.problem = None
            return self._connection, True

    def _connect(self, ask: Call | None, call: Call | None) -> SSHConnection:
        hops = route.resolve(self._way.words, identity=self._way.identity, config=self._way.config)
        progress = call.progress if call is not None else (lambda hop, step: None)
        return connect.connect(hops, ask=ask, progress=progress, trust_file=self._trust_file)

    @staticmethod
    def _is_usable(connection: SSHConnection, can_ask: bool, proven: bool) -> bool:
        """A silent one that nobody here could make anew is waited for; whoever can be asked does not wait."""
        if not connection.alive():
            return False
        if not can_ask and (proven or connection.interactive):
            return True
        return connection.responds(RESPONDS_WITHIN)


def _is_dead(connection: SSHConnection) -> bool:
    if not connection.alive():
        return True
    return not connection.interactive and not connection.responds(RESPONDS_WITHIN)


def _as_ours(error: GpuKernelError | OSError, way: Way) -> GpuKernelError:
    return error if isinstance(error, GpuKernelError) else ConnectError(str(error), hop=way.words[-1])
