"""The owners of abstract unix sockets, also of those that do not accept connections, as far as the system tells them.

Linux reports the uid over netlink from 5.3 on, see sock_diag(7). It reports no pid: that is known only of processes
whose descriptors we may see, which are those of the same user.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import sys
from typing import Collection, Dict, Iterator, NamedTuple, Optional, Tuple

from ....wire import sock_diag
from ...system import procfs
from ...system.agent_runtime import AgentRuntime, Owner

_STREAM, _UNCONNECTED, _LISTENING = b"0001", b"01", b"00010000"
_REQUEST = struct.Struct("=BBHIIIII")  # struct unix_diag_req
_ANSWER = struct.Struct("=BBBBIII")  # struct unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr
_SHOW_NAME_AND_UID, _NAME, _UID = 0x41, 0, 7
_MOST_SOCKETS = 50_000
"""How many sockets of the node are read: any user can open so many that reading them all takes seconds."""


class Row(NamedTuple):
    """A stream socket that has an abstract name. Only one that is bound takes the name; accepted ones only show it."""

    name: bytes
    inode: int
    listening: bool
    connected: bool


def rows(runtime: AgentRuntime, prefix: bytes) -> Iterator[Row]:
    """Yield the stream sockets whose abstract names begin with `prefix`; nothing where the site hides the list."""
    with contextlib.suppress(OSError), runtime.socket_table() as file:
        for line in itertools.islice(file, _MOST_SOCKETS):
            if prefix not in line:
                continue
            # num refcount protocol flags type state inode path
            fields = line.rstrip(b"\n").split(None, 7)
            if len(fields) == 8 and fields[4] == _STREAM and fields[7].startswith(b"@" + prefix):
                listening, connected = fields[3] == _LISTENING, fields[5] != _UNCONNECTED
                yield Row(fields[7][1:], int(fields[6]), listening, connected)


def find_owners(runtime: AgentRuntime, prefix: str, names: Collection[str]) -> Dict[str, Owner]:
    """Return the owners of those of these names (without the prefix) to which a socket is bound."""
    start = prefix.encode()
    wanted = {start + name.encode(): name for name in names}
    bound = [row for row in rows(runtime, start) if row.name in wanted and not row.connected]
    return {wanted[row.name]: _owner(row) for row in bound}


def _owner(row: Row) -> Owner:
    uid: Optional[int] = None
    with contextlib.suppress(OSError, struct.error):
        uid = query_uid(row.inode, row.name)
    pid = find_process(row.inode) if uid in (None, os.getuid()) else 0
    if uid is None and pid:
        uid = os.getuid()
    return Owner(pid, -1 if uid is None else uid)


def query_uid(inode: int, name: bytes) -> Optional[int]:
    """Return the uid that owns the socket with this inode and abstract name, as netlink reports it; None if it does
    not. Raises OSError if there is no such socket, or no netlink."""
    anything = sock_diag.ANY
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0, anything, inode, _SHOW_NAME_AND_UID, anything, anything)
    found = dict(_attributes(sock_diag.query(request)[_ANSWER.size :]))
    if found.get(_NAME) != b"\0" + name or len(found.get(_UID, b"")) != 4:
        return None  # another socket has the inode by now
    return int.from_bytes(found[_UID], sys.byteorder)


def _attributes(data: bytes) -> Iterator[Tuple[int, bytes]]:
    """Yield the kinds and values of netlink attributes, which begin at multiples of four bytes."""
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[max(_ATTRIBUTE.size, length + 3 & ~3) :]


def find_process(inode: int) -> int:
    """Return the pid of a process of this user that has the socket with this inode; 0 if there is none."""
    name = f"socket:[{inode}]"
    mine = (pid for pid in procfs.pids() if procfs.uid_of(pid) == os.getuid())
    return next((pid for pid in mine if name in procfs.open_files(pid)), 0)
