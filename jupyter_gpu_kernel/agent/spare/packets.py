"""JSON objects with file descriptors, on a Unix socket between a keeper and a spare interpreter.

The socket is of the type SOCK_SEQPACKET: one packet is one object.
"""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any, Dict, List, Sequence, Tuple

from ...wire.fields import FieldError, load_object
from ..unix_sockets import peer

TYPE = socket.SOCK_SEQPACKET
MAX_FDS = 4
_MAX_PACKET = 1 << 20
_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def send(sock: socket.socket, packet: Dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one object. Raises OSError if the peer has gone, or the packet is too large for the system."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([json.dumps(packet).encode()], rights, socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> Tuple[Dict[str, Any], List[int]]:
    """Receive one object and its descriptors. Raises EOFError at the end, FieldError for anything but an object."""
    fds = array.array("i")
    data, ancillary, flags, _ = sock.recvmsg(_MAX_PACKET, socket.CMSG_SPACE(MAX_FDS * fds.itemsize), _FLAGS)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    try:
        if not data:
            raise EOFError
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise FieldError("a packet that is too large")
        return load_object(data), list(fds)
    except (EOFError, FieldError):
        for fd in fds:
            os.close(fd)
        raise


def is_own(sock: socket.socket) -> bool:
    """Whether the peer is a process of this user."""
    return peer(sock).uid == os.geteuid()
