"""The user at the other end of a TCP connection within this machine, as Linux tells it.

It does so over netlink, see sock_diag(7), and, more slowly, in /proc/net/tcp. This file does not know ZMQ.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import sys
from functools import cache
from pathlib import Path

Address = tuple[str, int]

_TABLES = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
_READS = 3
"""The system writes a table piece by piece, so a row can be missing from one copy of it."""
_ESTABLISHED = 1
"""A socket that its process has closed is in another state, and belongs to root."""

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _NLMSG_ERROR = 4, 20, 1, 2
_HEADER = struct.Struct("=IHHII")
_SOCKET = struct.Struct("!HH16s16s12s")
_ANY = bytes(4) + b"\xff" * 8  # interface, cookie


@cache
def available() -> bool:
    """Whether this system tells it: a connection to ourselves is ours."""
    if sys.platform != "linux":
        return False
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            with socket.create_connection(address) as client:
                return _owner(client.getsockname(), address) == os.geteuid()
    except OSError:
        return False


def uid_of(connection: socket.socket) -> int | None:
    """The user who owns the peer's socket; None if that is closed, or cannot be found."""
    try:
        return _owner(connection.getpeername()[:2], connection.getsockname()[:2])
    except OSError:
        return None


def _owner(client: Address, server: Address) -> int | None:
    try:
        return by_netlink(client, server)
    except OSError:
        return by_tables(client, server)


def by_netlink(client: Address, server: Address) -> int | None:
    """The owner of the socket at `client` that is connected to `server`."""
    local, remote = (_ip(ip).packed.ljust(16, b"\0") for ip, _ in (client, server))
    family = socket.AF_INET if _ip(client[0]).version == 4 else socket.AF_INET6
    request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 1 << _ESTABLISHED)
    request += _SOCKET.pack(client[1], server[1], local, remote, _ANY)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        size = _HEADER.size + len(request)
        netlink.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + request)
        answer = netlink.recv(8192)
    _, kind, *_ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        (error,) = struct.unpack_from("=i", answer, _HEADER.size)
        if -error != errno.ENOENT:
            raise OSError(-error, os.strerror(-error))
        return None
    _, state, *_, uid, _ = struct.unpack_from("=BBBB48x5I", answer, _HEADER.size)
    return int(uid) if state == _ESTABLISHED else None


def by_tables(client: Address, server: Address) -> int | None:
    """The same, more slowly."""
    for _ in range(_READS):
        for table in _TABLES:
            uid = find(table.read_bytes(), client, server) if table.exists() else None
            if uid is not None:
                return uid
    return None


def find(table: bytes, client: Address, server: Address) -> int | None:
    """The same, in one table."""
    for ours, theirs in zip(_spellings(*client), _spellings(*server), strict=True):
        _, found, rest = table.partition(b": %s %s %02X " % (ours, theirs, _ESTABLISHED))
        if found:
            return int(rest.split(maxsplit=4)[3])
    return None


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    return (address.version == 6 and address.ipv4_mapped) or address


def _spellings(ip: str, port: int) -> list[bytes]:
    """An address as the tables have it: groups of four bytes as numbers of this machine. An IPv4 address also stands
    in an IPv6 socket's row."""
    packed = [_ip(ip).packed]
    if len(packed[0]) == 4:
        packed.append(bytes(10) + b"\xff\xff" + packed[0])
    words = [[b"%08X" % word for (word,) in struct.iter_unpack("=I", one)] for one in packed]
    return [b"".join(one) + b":%04X" % port for one in words]
