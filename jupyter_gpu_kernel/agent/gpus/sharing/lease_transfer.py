"""Passes leases from one keeper to another, so that at no moment another process can take them.

The sockets of the leases are passed through a datagram socket in the folder of the kernel that gets them.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Callable, List, Optional, Sequence

from ....wire.fields import FieldError, load_object, number, text
from ...paths import is_kernel_id
from ...system.agent_runtime import AgentRuntime
from ...system.loop import Loop
from ...system.unix_sockets import bind_datagrams, receive_descriptors, send_descriptors
from .lease import Lease

OnLeases = Callable[[str, List[socket.socket], Optional[float]], None]
"""on_leases(kernel_id, sockets, since): the leases of this kernel, which got them at this time, if that is known."""
_TRANSFER = "leases"
"""The name of the socket in a kernel's folder at which its keeper receives leases."""
_MAX_LEASES = 64
_MAX_MESSAGE = 4096


def hand_over(
    runtime: AgentRuntime, folder: Path, kernel_id: str, leases: Sequence[Lease], since: Optional[float]
) -> bool:
    """Pass the leases that the kernel `kernel_id` has since this time to the keeper with this folder. The caller still
    has to release them.

    Returns whether there is such a keeper.
    """
    descriptors = [lease.announcement.fileno() for lease in leases[:_MAX_LEASES]]
    message = {"kernel": kernel_id, "since": int(since or 0)}
    with runtime.unix_socket(socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(str(folder / _TRANSFER))
            send_descriptors(sock, json.dumps(message).encode(), descriptors)
        except OSError:
            return False
    return True


class LeaseReceiver:
    """Calls `on_leases` when another keeper passes its leases."""

    def __init__(self, loop: Loop, folder: Path, on_leases: OnLeases) -> None:
        self._loop = loop
        self._on_leases = on_leases
        self._sock = bind_datagrams(loop.runtime, folder / _TRANSFER)
        loop.watch(self._sock.fileno(), lambda _: self._receive())

    def close(self) -> None:
        """Receive nothing any more."""
        self._loop.forget(self._sock.fileno())
        self._sock.close()

    def _receive(self) -> None:
        try:
            message, descriptors, _ = receive_descriptors(self._sock, _MAX_MESSAGE, _MAX_LEASES)
        except (BlockingIOError, InterruptedError):
            return
        sockets = [self._loop.runtime.received_socket(one) for one in descriptors]
        try:
            request = load_object(message)
            kernel_id = text(request, "kernel")
            since = number(request, "since", 0, most=int(self._loop.runtime.time()))
        except FieldError:
            kernel_id, since = "", 0
        if is_kernel_id(kernel_id):
            return self._on_leases(kernel_id, sockets, since or None)
        for sock in sockets:  # the message came from some other process of this user
            sock.close()
