"""Unix sockets of this user's processes: how they listen, whether one listens, who is at the other end, and how
descriptors are passed."""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
from pathlib import Path
from typing import List, NamedTuple, Sequence, Tuple

from .agent_runtime import AgentRuntime

NO_LISTENER = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)
"""The errors of connecting to a path at which no process listens."""
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


class Owner(NamedTuple):
    """The process that has a socket. pid 0, uid -1: unknown."""

    pid: int
    uid: int


def listen(path: Path, backlog: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """Return a socket that listens and does not block. Its file appears when it listens, so that whoever finds the file
    can connect. That file takes the place of the file of a killed process."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(new))
        os.chmod(str(new), 0o600)
        listener.listen(backlog)
        os.replace(str(new), str(path))
    except OSError:
        listener.close()
        raise
    return listener


def bind_datagrams(runtime: AgentRuntime, path: Path) -> socket.socket:
    """Return a socket that receives datagrams at this path, and does not block. It takes the place of that of a killed
    process."""
    path.unlink(missing_ok=True)
    sock = runtime.unix_socket(socket.SOCK_DGRAM)
    sock.bind(str(path))
    return sock


def has_listener(path: Path) -> bool:
    """Return whether a process listens there, however busy it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        return sock.connect_ex(str(path)) not in NO_LISTENER


def peer(sock: socket.socket) -> Owner:
    """Return the process at the other end, from the system."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Owner(*_CREDENTIALS.unpack(data)[:2])


def send_descriptors(sock: socket.socket, data: bytes, descriptors: Sequence[int], flags: int = 0) -> None:
    """Send the data in one message, and with it these descriptors. Raises OSError if the peer has gone."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sock.sendmsg([data], rights, flags)


def receive_descriptors(
    sock: socket.socket, size: int, most: int, flags: int = 0
) -> Tuple[bytes, List[int], bool]:
    """Receive one message; return its data, its descriptors, at most `most`, which are the caller's from now on, and
    whether the message was longer, or had more."""
    found = array.array("i")
    space = socket.CMSG_SPACE(most * found.itemsize)
    data, ancillary, received, _ = sock.recvmsg(size, space, _CLOSE_ON_EXEC | flags)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    return data, list(found), bool(received & (socket.MSG_TRUNC | socket.MSG_CTRUNC))
