"""Kernels whose front end has left and may return with the same ports: they are kept here for a moment.

There are two kinds. An argv front end restarts its kernel by a new launcher with the old connection file. A front end
that was killed may be started again. This module knows neither clients nor nodes.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from .remote_kernel import RemoteKernel

RECONNECT_TIMEOUT = 10.0
"""Seconds in which the front end has to return."""
Ports = tuple[str, int]


class _Waiting(NamedTuple):
    """A kernel that waits. `restarts`: its front end has shut it down in order to start it again."""

    remote: RemoteKernel
    restarts: bool
    timer: asyncio.TimerHandle


class ReconnectGrace:
    """The kernels that wait for their front end; true while there is one."""

    def __init__(self) -> None:
        self._waiting: dict[Ports, _Waiting] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, remote: RemoteKernel, connection: dict[str, Any], *, restarts: bool) -> None:
        """Keep the kernel with its ports. After the timeout it is closed, or, if it was to be restarted, stopped."""
        remote.hold() if restarts else remote.pause()
        ports = ports_of(connection)
        timer = asyncio.get_running_loop().call_later(RECONNECT_TIMEOUT, self._give_up, ports)
        self._waiting[ports] = _Waiting(remote, restarts, timer)

    def pop(self, connection: dict[str, Any]) -> RemoteKernel | None:
        """Return the kernel whose front end had these ports, which has returned; None if it is a new one."""
        waiting = self._waiting.pop(ports_of(connection), None)
        if waiting is None:
            return None
        waiting.timer.cancel()
        return waiting.remote

    def release(self, name: str, notebook: str) -> None:
        """Close the kernel of this kernelspec and notebook, as the notebook returns by another front end."""
        for ports, (remote, restarts, timer) in list(self._waiting.items()):
            before = remote.settings["name"], remote.settings["notebook"]
            if notebook and not restarts and before == (name, notebook):
                timer.cancel()
                del self._waiting[ports]
                remote.close()

    def _give_up(self, ports: Ports) -> None:
        waiting = self._waiting.pop(ports)
        if waiting.restarts:
            waiting.remote.stop("its front end did not come back to restart it")
        else:
            waiting.remote.close()


def ports_of(connection: dict[str, Any]) -> Ports:
    """Return what two front ends share only if they have the same connection file."""
    return str(connection.get("key")), int(connection.get("shell_port") or 0)
