"""Where spare interpreters may be, whether there is memory for them, and what keepers and they send each other.

<root>/spare/<key>.sock   on which it listens: JSON objects with file descriptors, one in each packet
<root>/spare/<key>.lock   held while it offers to fork kernels
<root>/spare/<key>.log    what it has printed
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ...wire.fields import FieldError, load_object
from ..exit.descendants import ROOT, TAG
from ..exit.node_checks import read_memory
from ..gpus.devices.gpu import AMD, NVIDIA
from ..paths import FolderError, is_locked, make_private, take_lock
from ..system.agent_runtime import listen, peer, receive_descriptors, send_descriptors

SOCKET_TYPE = socket.SOCK_SEQPACKET
MAX_FDS = 4
_MAX_PACKET = 1 << 20
MAX_SPARES = 3
"""Spare interpreters of one user on one node."""
_FOLDER = "spare"
_LEAST_SHARE = 0.1
"""The share of the memory of the node, or of the cgroup, below which nothing is kept in it for later."""


def send_packet(sock: socket.socket, packet: Dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one object. Raises OSError if the peer has gone, or the packet is too large for the system."""
    send_descriptors(sock, json.dumps(packet).encode(), fds, socket.MSG_NOSIGNAL)


def receive_packet(sock: socket.socket) -> Tuple[Dict[str, Any], List[int]]:
    """Receive one object and its descriptors. Raises EOFError at the end, FieldError for anything but an object."""
    data, fds, truncated = receive_descriptors(sock, _MAX_PACKET, MAX_FDS)
    try:
        if not data:
            raise EOFError
        if truncated:
            raise FieldError("a packet that is too large")
        return load_object(data), fds
    except (EOFError, FieldError):
        for fd in fds:
            os.close(fd)
        raise


def is_own(sock: socket.socket) -> bool:
    """Whether the peer is a process of this user."""
    return peer(sock).uid == os.geteuid()


class KernelStart(NamedTuple):
    """How a kernel is to be started. `command`: as `ps` shows it, with the arguments of ipykernel behind `skip` words;
    `output`, `fds`: descriptors, of which each variable in `fds` names one."""

    command: List[str]
    skip: int
    cwd: str
    env: Dict[str, str]
    output: int
    fds: Dict[str, int]

    def request(self) -> Dict[str, Any]:
        """Return the request for this start. Its descriptors are `[output, *fds.values()]`."""
        return {**self._asdict(), "output": 0, "fds": list(self.fds)}

    @classmethod
    def read(cls, request: Dict[str, Any], fds: List[int]) -> KernelStart:
        """Return the start that a request asks for, which came with these descriptors."""
        return cls(**dict(request, output=fds[0], fds=dict(zip(request["fds"], fds[1:]))))

    @property
    def agent(self) -> List[str]:
        """The part of the command that runs the agent with the kernel's Python."""
        return self.command[: self.skip - 1]

    @property
    def shown_variables(self) -> Dict[str, str]:
        """The variables by which others find the processes of the kernel, and see which GPUs it has."""
        return {name: self.env[name] for name in (TAG, ROOT, NVIDIA, AMD) if name in self.env}


class SparePlace:
    """The files of one spare interpreter."""

    def __init__(self, root: Path, key: str) -> None:
        """Makes the folder, mode 0700. Raises OSError, or FolderError if it is another user's."""
        folder = root / _FOLDER
        make_private(folder)
        self.key = key
        self._socket = folder / f"{key}.sock"
        self._lock = folder / f"{key}.lock"
        self.log = folder / f"{key}.log"

    def lock(self) -> Optional[int]:
        """Take the place; return a descriptor that holds it as long as it is open, or None if it is taken."""
        return take_lock(self._lock)

    def is_taken(self) -> bool:
        """Whether a process has the place."""
        return is_locked(self._lock)

    def listens(self) -> bool:
        """Whether there is a socket to connect to."""
        return self._socket.exists()

    def listen(self) -> socket.socket:
        """Return a listening socket, whose file appears when it listens. The place must be locked."""
        return listen(self._socket, 8, SOCKET_TYPE)

    def connect(self, timeout: float) -> Optional[socket.socket]:
        """Return a connection to the process; None if there is none, or it does not accept one at once."""
        sock = socket.socket(socket.AF_UNIX, SOCKET_TYPE)
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.connect(str(self._socket))
            if is_own(sock):
                sock.settimeout(timeout)
                return sock
        sock.close()
        return None

    def is_ours(self, lock: int) -> bool:
        """Whether this descriptor, which `lock` returned, still holds the place: its file may have been removed."""
        try:
            return os.path.samestat(os.fstat(lock), os.stat(str(self._lock)))
        except OSError:
            return False

    def retire(self) -> None:
        """Have the process that has the place fork no more kernels, and end with the last that it has forked. A process
        that does not listen yet ends as soon as it would listen."""
        sock = self.connect(1.0)
        for path in (self._lock, self._socket):
            path.unlink(missing_ok=True)
        if sock is not None:
            with sock, contextlib.suppress(OSError):
                send_packet(sock, {"retire": True})

    def remove_socket(self) -> None:
        """Remove the file, so that nobody connects any more."""
        self._socket.unlink(missing_ok=True)


def spares_running(root: Path) -> int:
    """Return the number of spare interpreters that run."""
    return sum(map(is_locked, (root / _FOLDER).glob("*.lock")))


def has_room(root: Path) -> bool:
    """Return whether the spare interpreter that has just locked its place may run."""
    return spares_running(root) <= MAX_SPARES and not is_short()


def retire_all(root: Path) -> None:
    """Have all spare interpreters of this folder retire, and give up their memory."""
    for path in (root / _FOLDER).glob("*.lock"):
        with contextlib.suppress(OSError, FolderError):
            SparePlace(root, path.stem).retire()


def is_short() -> bool:
    """Return whether the node, or our cgroup, is so short of memory that nothing may be kept in it for later."""
    memory = read_memory()
    available, total = memory["node_available_mib"], memory["node_total_mib"]
    used, limit = memory["cgroup_used_mib"], memory["cgroup_limit_mib"]
    node_is_short = available is not None and available < total * _LEAST_SHARE
    return node_is_short or (None not in (used, limit) and limit - used < limit * _LEAST_SHARE)
