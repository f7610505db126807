"""The ZeroMQ sockets to the kernel, the signatures of its messages, and when the kernel is ready.

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
from ...wire.messages import MAX_CLIENTS, MAX_PARTS, Channel
from ..kernel_protocol import DELIMITER, keeper_identity, read_mark
from ..relay.internal_requests import InternalRequests
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

OnMessage = Callable[[Channel, int, Tuple[bytes, ...]], None]
_READY_INTERVAL = 0.1
"""Seconds between two requests to a kernel that is not ready yet."""


class KernelSockets:
    """`on_message(channel, client, parts)` is called for every message of the kernel, `on_mark(total)` after one that
    has a mark."""

    def __init__(
        self, loop: Loop, folder: Path, on_message: OnMessage, on_mark: Callable[[int], object]
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

    def send(self, channel: Channel, client: int, parts: Tuple[bytes, ...]) -> None:
        """Send one message; nothing, if the process has ended.

        The client's number travels as identity: the kernel sends it back with the reply.
        """
        if channel not in self._sockets:
            return
        frames = [b"%d" % client, DELIMITER, self._sign(parts[:4]), *parts]
        socket, copy = self._sockets[channel], len(parts) == 4
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
        self._on_message(channel, client, parts)
        mark = read_mark(frames[at - 1]) if channel is Channel.IOPUB and at else None
        if mark is not None:
            self._on_mark(mark)

    def _sign(self, parts: Tuple[bytes, ...]) -> bytes:
        mac = self._empty.copy()  # faster than a new one
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()


class Readiness:
    """Calls `on_up()` when the kernel is ready. `reset` for every process, `begin` once its sockets are bound."""

    def __init__(self, loop: Loop, internal_requests: InternalRequests, on_up: Callable[[], None]) -> None:
        self.up = False
        self.kernel_info: Dict[str, Any] = {}
        """The kernel's kernel_info_reply."""
        self._loop = loop
        self._internal_requests = internal_requests
        self._on_up = on_up
        self._process = 0
        self._replied = self._published = False

    def reset(self) -> None:
        """The process has ended, or another one is to be started."""
        self.up = self._replied = self._published = False
        self._process += 1

    def begin(self) -> None:
        """Ask until a reply and an iopub message have come: messages to a socket that is not yet connected are lost."""
        self._ask(self._process)

    def received_iopub(self) -> None:
        """A message was received on iopub."""
        if not self._published:
            self._published = True
            self._check()

    def _ask(self, process: int) -> None:
        if not self.up and process == self._process:  # else that process has ended
            self._internal_requests.send(Channel.CONTROL, "kernel_info_request", {}, self._answered)
            self._loop.later(_READY_INTERVAL, lambda: self._ask(process))

    def _answered(self, info: Dict[str, Any]) -> None:
        self.kernel_info = info
        self._replied = True
        self._check()

    def _check(self) -> None:
        if not self.up and self._replied and self._published:
            self.up = True
            self._on_up()
