"""Transfers a kernel's GPU leases to another kernel's keeper, when a restart has started a new kernel.

The sockets of the leases are passed on, so at no moment can another process take a lease. This module knows neither
cells nor why the kernel is replaced.
"""

from __future__ import annotations

import array
import contextlib
import json
import socket
from pathlib import Path
from typing import Any, Callable, List, Sequence

from ..loop import Loop
from ..paths import is_kernel_id
from .lease import Lease

NAME = "leases"
"""The name of the socket in a kernel's folder at which its keeper receives leases."""
_MAX_LEASES = 64
_MAX_MESSAGE = 4096


def transfer(folder: Path, kernel_id: str, leases: Sequence[Lease]) -> bool:
    """Pass the leases of the kernel `kernel_id` to the keeper with this folder. The caller still has to release them.

    Returns whether there is such a keeper.
    """
    descriptors = array.array("i", [lease.fileno() for lease in leases[:_MAX_LEASES]])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        try:
            sock.connect(str(folder / NAME))
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []
            sock.sendmsg([json.dumps({"kernel": kernel_id}).encode()], ancillary)
        except OSError:
            return False
    return True


class Receiver:
    """Calls `on_leases(kernel_id, sockets)` when another keeper passes its leases."""

    def __init__(
        self, loop: Loop, folder: Path, on_leases: Callable[[str, List[socket.socket]], None]
    ) -> None:
        self._on_leases = on_leases
        path = folder / NAME
        with contextlib.suppress(FileNotFoundError):  # of a killed keeper
            path.unlink()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(str(path))
        self._sock.setblocking(False)
        loop.watch(self._sock.fileno(), lambda _: self._receive())

    def _receive(self) -> None:
        ancillary_size = socket.CMSG_SPACE(_MAX_LEASES * array.array("i").itemsize)
        try:
            message, ancillary, _, _ = self._sock.recvmsg(_MAX_MESSAGE, ancillary_size)
        except (BlockingIOError, InterruptedError):
            return
        sockets = _sockets(ancillary)
        try:
            kernel_id = json.loads(message.decode())["kernel"]
        except (ValueError, KeyError, TypeError, RecursionError):
            kernel_id = None
        if is_kernel_id(kernel_id):
            return self._on_leases(kernel_id, sockets)
        for sock in sockets:  # the message came from some other process of this user
            sock.close()


def _sockets(ancillary: Sequence[Any]) -> List[socket.socket]:
    """The sockets that were passed with a message."""
    numbers = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return [socket.socket(fileno=number) for number in numbers]
