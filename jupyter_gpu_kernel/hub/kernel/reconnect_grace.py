"""Kernels whose front end is gone, and may be about to come back with the same ports: for a moment they are kept here.

Two kinds: an argv front end that restarts its kernel comes by a new process with its old connection file; one that was
killed may be started again. This file knows neither faces nor nodes.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from .remote_kernel import RemoteKernel

WITHIN = 10.0
"""Seconds it has."""
Ports = tuple[str, int]


class Gone(NamedTuple):
    """A kernel that waits; `restarts`: its front end has ended it, to start it anew."""

    remote: RemoteKernel
    restarts: bool
    timer: asyncio.TimerHandle


class ReconnectGrace:
    """`wait` for one, `take` it when it comes; true while one is waited for."""

    def __init__(self) -> None:
        self._gone: dict[Ports, Gone] = {}

    def __bool__(self) -> bool:
        return bool(self._gone)

    def wait(self, remote: RemoteKernel, connection: dict[str, Any], *, restarts: bool) -> None:
        """Keeps the ports; after a moment the kernel is let go of, or, if it was to be restarted, ended."""
        remote.hold() if restarts else remote.pause()
        ports = ports_of(connection)
        timer = asyncio.get_running_loop().call_later(WITHIN, self._give_up, ports)
        self._gone[ports] = Gone(remote, restarts, timer)

    def take(self, connection: dict[str, Any]) -> RemoteKernel | None:
        """The kernel that this front end had; None if it is a new one."""
        gone = self._gone.pop(ports_of(connection), None)
        if gone is None:
            return None
        gone.timer.cancel()
        return gone.remote

    def give_way(self, name: str, notebook: str) -> None:
        """The notebook comes back by another front end: what was kept for the killed one is free."""
        for ports, (remote, restarts, timer) in list(self._gone.items()):
            before = remote.settings["name"], remote.settings["notebook"]
            if notebook and not restarts and before == (name, notebook):
                timer.cancel()
                del self._gone[ports]
                remote.close()

    def _give_up(self, ports: Ports) -> None:
        gone = self._gone.pop(ports)
        if gone.restarts:
            gone.remote.stop("nobody came back to restart it")
        else:
            gone.remote.close()


def ports_of(connection: dict[str, Any]) -> Ports:
    """What two front ends share only if they have the same connection file."""
    return str(connection.get("key")), int(connection.get("shell_port") or 0)
