"""Passes leases from one keeper to another, so that at no moment another process can take them.

A lease is held while any process has a descriptor of its socket. To a kernel that replaces another one these
descriptors are passed through a datagram socket in its folder. A keeper that is killed leaves them to its successor:
it has sent them to a datagram socket that is connected to itself, and that the kernel's process inherits. Nobody
receives them there, so that the system keeps them as long as the keeper or the kernel lives. The kernel's process does
nothing with this socket: to release its leases, the keeper receives the descriptors itself.
"""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from typing import Callable, NamedTuple, Sequence

from ....wire.fields import FieldError, load_object, text
from ...paths import is_kernel_id
from ...system.agent_runtime import AgentRuntime, bind_datagrams, receive_descriptors, send_descriptors
from ...system.loop import Loop
from .lease import Lease

_TRANSFER = "leases"
"""The name of the socket in a kernel's folder at which its keeper receives leases."""
_QUEUE = "queue"
"""The name in a kernel's folder of the socket that keeps leases, until it is connected to itself."""
_MAX_LEASES = 64
_MAX_MESSAGE = 4096


class PassedLeases(NamedTuple):
    """The leases, by their sockets, of the kernel `kernel_id`."""

    kernel_id: str = ""
    sockets: Sequence[socket.socket] = ()

    def close(self) -> None:
        """Release the leases, unless another process has the sockets, too."""
        for sock in self.sockets:
            sock.close()


class LeaseReceiver:
    """Calls `on_leases` when another keeper passes its leases."""

    def __init__(self, loop: Loop, folder: Path, on_leases: Callable[[PassedLeases], None]) -> None:
        self._loop = loop
        self._on_leases = on_leases
        self._sock = bind_datagrams(loop.runtime, folder / _TRANSFER)
        loop.watch(self._sock.fileno(), lambda _: self._receive())

    def close(self) -> None:
        """Receive nothing any more."""
        self._loop.forget(self._sock.fileno())
        self._sock.close()

    def _receive(self) -> None:
        passed = _receive(self._loop.runtime, self._sock)
        if passed.kernel_id:
            self._on_leases(passed)


class LeaseTransfer(NamedTuple):
    """Passes the leases of one kernel to another keeper.

    queue: A socket from `new_queue`, perhaps made by a keeper that was killed. The kernel inherits it.
    """

    runtime: AgentRuntime
    kernel_id: str
    queue: socket.socket

    def hand_over(self, folder: Path, leases: Sequence[Lease]) -> bool:
        """Pass the leases to the keeper of another kernel, with this folder. The caller still has to release them.

        Returns whether there is such a keeper.
        """
        with contextlib.suppress(OSError), self.runtime.unix_socket(socket.SOCK_DGRAM) as sock:
            sock.connect(str(folder / _TRANSFER))
            self._send(sock, leases)
            return True
        return False

    def keep(self, leases: Sequence[Lease]) -> None:
        """Keep the leases. Raises OSError if the system refuses it."""
        self._send(self.queue, leases)

    def _send(self, sock: socket.socket, leases: Sequence[Lease]) -> None:
        message = {"kernel": self.kernel_id}
        descriptors = [lease.announcement.fileno() for lease in leases[:_MAX_LEASES]]
        send_descriptors(sock, json.dumps(message).encode(), descriptors)

    def inherit(self) -> PassedLeases:
        """Return the leases that the killed keeper has kept. They stay kept."""
        return _receive(self.runtime, self.queue, socket.MSG_PEEK | socket.MSG_DONTWAIT)

    def release(self) -> None:
        """Keep no leases any more; harmless when repeated."""
        # MSG_DONTWAIT: a cell may have changed the socket's mode.
        _receive(self.runtime, self.queue, socket.MSG_DONTWAIT).close()


def new_queue(runtime: AgentRuntime, folder: Path) -> socket.socket:
    """Return a socket to which only the processes that have it can send. `folder`: the kernel's."""
    queue = bind_datagrams(runtime, folder / _QUEUE)
    queue.connect(str(folder / _QUEUE))
    (folder / _QUEUE).unlink(missing_ok=True)
    return queue


def _receive(runtime: AgentRuntime, sock: socket.socket, flags: int = 0) -> PassedLeases:
    """Return the leases in the next message; none if there is no message, or some other process of this user has sent
    it."""
    try:
        message, descriptors, _ = receive_descriptors(sock, _MAX_MESSAGE, _MAX_LEASES, flags)
    except (BlockingIOError, InterruptedError):
        return PassedLeases()
    passed = PassedLeases(sockets=[runtime.received_socket(one) for one in descriptors])
    with contextlib.suppress(FieldError):
        passed = passed._replace(kernel_id=text(load_object(message), "kernel"))
    if is_kernel_id(passed.kernel_id):
        return passed
    passed.close()
    return PassedLeases()
