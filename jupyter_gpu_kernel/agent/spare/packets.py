"""What a keeper and a spare interpreter send each other: JSON objects with file descriptors, on a Unix socket; and the
object that says how a kernel is to be started.

The socket is of the type SOCK_SEQPACKET: one packet is one object.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ...wire.fields import FieldError, load_object
from ..exit.descendants import ROOT, TAG
from ..gpus.devices.visible_devices import AMD, NVIDIA
from ..system.unix_sockets import peer, receive_descriptors, send_descriptors

TYPE = socket.SOCK_SEQPACKET
MAX_FDS = 4
_MAX_PACKET = 1 << 20


def send(sock: socket.socket, packet: Dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one object. Raises OSError if the peer has gone, or the packet is too large for the system."""
    send_descriptors(sock, json.dumps(packet).encode(), fds, socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> Tuple[Dict[str, Any], List[int]]:
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
