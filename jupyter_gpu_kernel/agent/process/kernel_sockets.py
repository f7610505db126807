"""The ZeroMQ sockets to the kernel, and the signatures of its messages.

The kernel listens on ipc sockets in its own 0700 folder, so that no other user of the node can reach it. Messages are
signed with a key that never leaves the node.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import zmq

from ...wire.files import replace_file
from ...wire.messages import MAX_CLIENTS, MAX_PARTS, Channel, Message
from ..kernel_protocol import DELIMITER, keeper_identity, read_mark
from ..system.loop import Loop

DRAIN_TIMEOUT = 1.0
"""Seconds to read the last output of a process that has ended, where another process holds its socket open."""
_DRAIN_POLL_MS = 20
_BATCH = 200
"""Messages read in one turn of the loop, which an interrupt may have to wait for. Large ones count for more."""
_SMALL = 4096
_MORE = int(zmq.SNDMORE)
"""A plain number: to combine ZeroMQ's flags for each frame, as pyzmq does, takes longer than to send it."""
_CLIENT = re.compile(rb"[0-9]{1,10}")
_PORTS = {Channel.SHELL: 1, Channel.IOPUB: 2, Channel.STDIN: 3, Channel.CONTROL: 4}
_HEARTBEAT_PORT = 5


class KernelSockets:
    """`on_message(message)` is called for every message of the kernel, `on_mark(total)` after one that has a mark."""

    def __init__(
        self,
        loop: Loop,
        folder: Path,
        on_message: Callable[[Message], None],
        on_mark: Callable[[int], object],
    ) -> None:
        self.connection_file = folder / "connection.json"
        self._prefix = str(folder / "z")
        self._loop = loop
        self._on_message = on_message
        self._on_mark = on_mark
        self._key = loop.runtime.new_id().encode()
        self._empty = hmac.new(self._key, digestmod=hashlib.sha256)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._sockets: Dict[Channel, zmq.Socket[bytes]] = {}

    def write_connection_file(self) -> None:
        """Write the connection file of a kernel that is to be started."""
        ports = {channel.name.lower() + "_port": port for channel, port in _PORTS.items()}
        info = dict(ports, hb_port=_HEARTBEAT_PORT, transport="ipc", ip=self._prefix, key=self._key.decode())
        info.update(signature_scheme="hmac-sha256", kernel_name="")
        replace_file(self.connection_file, json.dumps(info).encode())

    def read_connection_file(self) -> None:
        """Use the key of a kernel that runs already. Raises OSError or ValueError if its folder is damaged."""
        info: Dict[str, Any] = json.loads(self.connection_file.read_text())
        self._key = str(info["key"]).encode()
        self._empty = hmac.new(self._key, digestmod=hashlib.sha256)

    def connect(self) -> None:
        """Connect to the kernel, once its sockets are bound."""
        for channel, port in _PORTS.items():
            socket = self._context.socket(zmq.SUB if channel is Channel.IOPUB else zmq.DEALER)
            socket.linger = 0
            socket.rcvhwm = socket.sndhwm = 0
            if channel is Channel.IOPUB:
                socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)  # see `_drain_iopub`
                socket.subscribe(b"")
            else:
                socket.identity = keeper_identity(self._key)
            socket.connect("ipc://%s-%d" % (self._prefix, port))
            self._sockets[channel] = socket
            self._loop.watch(socket, lambda _, channel=channel: self._receive(channel))  # type: ignore[misc]

    def send(self, request: Message) -> None:
        """Send one message; nothing, if the process has ended.

        The client's number travels as identity: the kernel sends it back with the reply.
        """
        if request.channel not in self._sockets:
            return
        frames = [b"%d" % request.client, DELIMITER, self._sign(request.parts[:4]), *request.parts]
        socket, copy = self._sockets[request.channel], len(request.parts) == 4
        for frame in frames[:-1]:
            socket.send(frame, _MORE, copy)
        socket.send(frames[-1], 0, copy)

    def close(self) -> None:
        """Read what the process that has ended still sent, and close the sockets."""
        self._drain_iopub()
        for channel in list(self._sockets):
            self._receive(channel, drain=True)
        for socket in self._sockets.values():
            self._loop.forget(socket)
            socket.close(linger=0)
        self._sockets.clear()
        for port in (*_PORTS.values(), _HEARTBEAT_PORT):
            Path("%s-%d" % (self._prefix, port)).unlink(missing_ok=True)

    def _drain_iopub(self) -> None:
        """Read output until ZeroMQ's own thread has read all of it, and has found the kernel's socket closed."""
        iopub = self._sockets.get(Channel.IOPUB)
        if iopub is None:
            return
        closed, deadline = iopub.get_monitor_socket(zmq.EVENT_DISCONNECTED), self._loop.time() + DRAIN_TIMEOUT
        while self._loop.time() < deadline:
            if iopub.poll(_DRAIN_POLL_MS):
                self._receive(Channel.IOPUB)
            elif closed.poll(0):
                break
        iopub.disable_monitor()
        closed.close(linger=0)

    def _receive(self, channel: Channel, drain: bool = False) -> None:
        socket = self._sockets.get(channel)
        if socket is None:  # the sockets were closed in this turn of the loop
            return
        remaining = _BATCH
        while remaining > 0 or drain:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            remaining -= 1 + sum(map(len, frames)) // _SMALL
            self._handle(channel, frames)
            if channel not in self._sockets:
                return

    def _handle(self, channel: Channel, frames: List[bytes]) -> None:
        at = frames.index(DELIMITER) if DELIMITER in frames else len(frames)
        signature, parts = b"".join(frames[at + 1 : at + 2]), tuple(frames[at + 2 :])
        if not 4 <= len(parts) <= MAX_PARTS or not hmac.compare_digest(signature, self._sign(parts[:4])):
            return  # only processes of this user can reach the socket
        client = 0
        if channel is not Channel.IOPUB and at and _CLIENT.fullmatch(frames[at - 1]):
            client = min(int(frames[at - 1]), MAX_CLIENTS)
        self._on_message(Message(channel, client, parts))
        mark = read_mark(frames[at - 1]) if channel is Channel.IOPUB and at else None
        if mark is not None:
            self._on_mark(mark)

    def _sign(self, parts: Tuple[bytes, ...]) -> bytes:
        mac = self._empty.copy()  # faster than a new one
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()
