"""Kernels whose front end has left and may return with the same ports within ten seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from .remote_kernel import RemoteKernel

RECONNECT_TIMEOUT = 10.0
"""Seconds in which a front end that left may return."""
Ports = tuple[str, int]
"""The key of a connection file, and its shell port."""


class _WaitingKernel(NamedTuple):
    """A kernel that waits. `restarts`: whether its front end has shut the kernel down to start it again."""

    remote: RemoteKernel
    restarts: bool
    timer: asyncio.TimerHandle


class ReconnectGrace:
    """The kernels whose front end has left and may return with the same ports. True while there are such kernels.

    There are two kinds. An argv front end restarts its kernel by a new launcher with the old connection file. A front
    end that was killed may be started again.
    """

    def __init__(
        self, stop: Callable[[RemoteKernel, str], None], abandon: Callable[[RemoteKernel], None]
    ) -> None:
        """`stop(kernel, why)` ends a kernel; `abandon(kernel)` is called when the front end has not come back."""
        self._stop = stop
        self._abandon = abandon
        self._waiting: dict[Ports, _WaitingKernel] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, remote: RemoteKernel, connection: dict[str, Any], *, restarts: bool) -> None:
        """Keep the kernel with its ports. After the timeout the kernel is released, or stopped if it was to be
        restarted. Until then it is detached only if its front end can find it again, with the output."""
        remote.pause() if can_be_found(remote) and not restarts else remote.hold()
        ports = ports_of(connection)
        timer = asyncio.get_running_loop().call_later(RECONNECT_TIMEOUT, self._give_up, ports)
        self._waiting[ports] = _WaitingKernel(remote, restarts, timer)

    def pop(self, connection: dict[str, Any]) -> RemoteKernel | None:
        """Return the kernel whose front end had these ports and has returned; None for a new front end."""
        waiting = self._waiting.pop(ports_of(connection), None)
        if waiting is None:
            return None
        waiting.timer.cancel()
        return waiting.remote

    def release(self, name: str, notebook: str) -> None:
        """Release the kernel of this kernelspec and notebook, as the notebook returns by another front end."""
        for ports, (remote, restarts, timer) in list(self._waiting.items()):
            before = remote.settings.name, remote.settings.notebook
            if notebook and not restarts and before == (name, notebook):
                timer.cancel()
                del self._waiting[ports]
                self._abandon(remote)

    def _give_up(self, ports: Ports) -> None:
        waiting = self._waiting.pop(ports)
        if waiting.restarts:
            self._stop(waiting.remote, "its front end did not come back to restart it")
        else:
            self._abandon(waiting.remote)


def can_be_found(remote: RemoteKernel) -> bool:
    """Return whether a front end can find the kernel again by the notebook, which VS Code may not have told or saved
    yet."""
    return bool(remote.settings.notebook) or remote.is_of_vs_code


def ports_of(connection: dict[str, Any]) -> Ports:
    """Return what two front ends share only if they have the same connection file."""
    return str(connection.get("key")), int(connection.get("shell_port") or 0)
