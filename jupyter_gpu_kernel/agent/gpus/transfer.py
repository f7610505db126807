"""A kernel's GPU leases go to another kernel's keeper: over a restart for which the front end started a new kernel.

The leases' sockets themselves are passed on, so there is no moment at which somebody else could take a lease. This
file knows neither cells nor why the kernel is replaced.
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
"""The socket in a kernel's folder at which its keeper takes leases."""
_MOST = 64
_LIMIT = 4096


def transfer(folder: Path, kernel_id: str, leases: Sequence[Lease]) -> bool:
    """Passes the leases of the kernel `kernel_id` to the keeper with this folder. They still have to be released here.

    False if there is no such keeper.
    """
    rights = array.array("i", [lease.fileno() for lease in leases[:_MOST]])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        try:
            sock.connect(str(folder / NAME))
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
            sock.sendmsg([json.dumps({"kernel": kernel_id}).encode()], ancillary)
        except OSError:
            return False
    return True


class Receiver:
    """`on_leases(kernel id, sockets of leases)` is called when another keeper passes its leases on."""

    def __init__(
        self, loop: Loop, folder: Path, on_leases: Callable[[str, List[socket.socket]], None]
    ) -> None:
        self._on_leases = on_leases
        path = folder / NAME
        with contextlib.suppress(FileNotFoundError):  # a killed keeper's
            path.unlink()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(str(path))
        self._sock.setblocking(False)
        loop.watch(self._sock.fileno(), lambda _: self._receive())

    def _receive(self) -> None:
        room = socket.CMSG_SPACE(_MOST * array.array("i").itemsize)
        try:
            words, ancillary, _, _ = self._sock.recvmsg(_LIMIT, room)
        except (BlockingIOError, InterruptedError):
            return
        sockets = _sockets(ancillary)
        try:
            kernel_id = json.loads(words.decode())["kernel"]
        except (ValueError, KeyError, TypeError, RecursionError):
            kernel_id = None
        if is_kernel_id(kernel_id):
            return self._on_leases(kernel_id, sockets)
        for sock in sockets:  # any process of this user can write here
            sock.close()


def _sockets(ancillary: Sequence[Any]) -> List[socket.socket]:
    """What was passed along with a message."""
    numbers = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return [socket.socket(fileno=number) for number in numbers]
