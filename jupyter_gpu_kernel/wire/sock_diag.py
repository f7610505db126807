"""Asks Linux about sockets of this machine, over netlink: see sock_diag(7)."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys

ANY = 0xFFFFFFFF
"""States, interface or cookie: whichever the socket has."""
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _NLMSG_ERROR = 4, 20, 1, 2
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_TIMEOUT = 0.2


def query(request: bytes) -> bytes:
    """Return the first answer to a request of one family of sockets. Raises OSError if the system reports an error:
    FileNotFoundError if there is no such socket."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(_TIMEOUT)
        netlink.send(header + request)
        answer = netlink.recv(8192)
    if _HEADER.unpack_from(answer)[1] == _NLMSG_ERROR:
        (error,) = struct.unpack_from("=i", answer, _HEADER.size)
        raise OSError(-error, os.strerror(-error))
    return answer[_HEADER.size :]
