"""The keeper's door: a unix socket in its 0700 folder, where attach processes come in and speak frames.

One of them at a time has the attachment (the newest: an older one may hang on a dead link); any may ask a
REQUEST. This file knows frames and the wire's connection, nothing of kernels.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional

import zmq

from ...wire.endpoint import Endpoint, ProtocolError, State
from ...wire.frames import CHUNK, MAX_PAYLOAD, Frame, FrameReader, Kind, reply_frame
from ...wire.messages import Lane, Message
from ..loop import Loop
from ..relay.output.backlog import Backlog
from ..relay.output.flow import Flow
from .rejected_input import MALFORMED

MOST_VISITORS = 64
MOST_PENDING = 4 * MAX_PAYLOAD
OnMessage = Callable[[Message], None]
OnRequest = Callable[[Dict[str, Any]], Dict[str, Any]]


class HubConnection:
    """One accepted socket: reads frames, writes what is due, never blocks."""

    def __init__(self, server: KeeperServer, sock: socket.socket) -> None:
        self.sock = sock
        self.pending = bytearray()
        self._door = server
        self._reader = FrameReader(greeting=False)
        self._writing = False
        sock.setblocking(False)
        server.loop.watch(sock.fileno(), self._ready)

    def _ready(self, events: int) -> None:
        try:
            if events & (zmq.POLLIN | zmq.POLLERR):
                data = self.sock.recv(256 * 1024)
                if not data:
                    return self._door.left(self)
                for frame in self._reader.feed(data):
                    self._door.frame(self, frame)
            self.flush()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._door.left(self)  # the hub comes back and resumes
        except Exception as error:  # whatever somebody sends, it ends this connection and not the kernel
            self._door.refused(self, error)

    def flush(self) -> None:
        """Writes what the socket takes; what is left waits until it is writable."""
        if self.sock.fileno() < 0:
            return
        while True:
            if len(self.pending) < CHUNK:
                self.pending += self._door.due(self)
            if not self.pending:
                break
            try:
                sent = self.sock.send(self.pending)
            except (BlockingIOError, InterruptedError):
                break
            del self.pending[:sent]
        if bool(self.pending) != self._writing:
            self._writing = not self._writing
            events = zmq.POLLIN | zmq.POLLOUT if self._writing else zmq.POLLIN
            self._door.loop.watch(self.sock.fileno(), self._ready, events)

    def close(self) -> None:
        """No more of this visitor."""
        if self.sock.fileno() >= 0:
            self._door.loop.forget(self.sock.fileno())
            self.sock.close()


class KeeperServer:
    """`send` queues for whoever has, or will have, the attachment; `on_message` gets what comes in."""

    def __init__(
        self,
        loop: Loop,
        path: Path,
        on_message: OnMessage,
        on_request: OnRequest,
        backlog: Backlog,
        on_refused: Callable[[Exception], object] = lambda error: None,
    ) -> None:
        """`on_refused(error)`: somebody's connection was closed for what it sent."""
        self.loop = loop
        self.path = path
        self.connection = Endpoint(first=False)
        self.flow = Flow(self.connection, backlog)
        self.on_attached: Callable[[], None] = lambda: None
        """Called when a hub has come in; set it."""
        self.on_left: Callable[[], object] = lambda: None
        """Called when it is gone; set it."""
        self._on_message = on_message
        self._on_request = on_request
        self._on_refused = on_refused
        self._attached: Optional[HubConnection] = None
        self._hubs: Dict[int, HubConnection] = {}
        self._flush_due = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.unlink(str(path))
        except FileNotFoundError:
            pass
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._listener.setblocking(False)
        loop.watch(self._listener.fileno(), self._accept)

    @property
    def attached(self) -> bool:
        """Whether a hub is there."""
        return self._attached is not None

    def send(self, lane: Lane, message: Message) -> None:
        """Queues a message; it is written at the end of this turn of the loop, with the others."""
        self.flow.send(lane, message)
        self._flush_soon()

    def withdraw(self) -> Iterator[Message]:
        """Takes back what nobody has acknowledged, in order of lanes: whoever comes now is somebody else."""
        return map(Message.decode, self.flow.withdraw())

    def close(self) -> None:
        """Takes the socket away."""
        for hub in list(self._hubs.values()):
            hub.flush()
            hub.close()
        self.loop.forget(self._listener.fileno())
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):  # a cleaner of /tmp was quicker
            self.path.unlink()

    # -------------------------------------------------------------------------------------- visitors' calls

    def frame(self, hub: HubConnection, frame: Frame) -> None:
        """A frame came in."""
        if frame.kind is Kind.REQUEST:
            return self._answer(hub, frame)
        if frame.kind is Kind.HELLO:
            if hub is self._attached:
                raise ProtocolError("a second HELLO")
            self.connection.check(frame)  # before the one who is there has to go
            self._attach(hub)
        if hub is not self._attached:
            raise ProtocolError("data from one that has not said hello")
        for data in self.connection.receive(frame):
            self._on_message(Message.decode(data))
        if frame.kind is Kind.HELLO:
            self.on_attached()
            self.flow.opened()

    def due(self, hub: HubConnection) -> bytes:
        """The next bytes for this visitor, about one chunk."""
        if hub is not self._attached or self.connection.state is not State.OPEN:
            return b""
        self.flow.feed()
        return b"".join(frame.encode() for frame in self.connection.outgoing(CHUNK))

    def left(self, hub: HubConnection) -> None:
        """The visitor is gone, or broke the rules."""
        was_attached = hub is self._attached
        self._part(hub)
        if was_attached:
            self.on_left()

    def refused(self, hub: HubConnection, error: Exception) -> None:
        """The visitor sent what cannot be."""
        self._on_refused(error)
        self.left(hub)

    def dismiss(self) -> None:
        """Whoever has the attachment has it no longer."""
        if self._attached is not None:
            self._part(self._attached)

    def _part(self, hub: HubConnection) -> None:
        self._hubs.pop(id(hub), None)
        hub.close()
        if hub is self._attached:
            self._attached = None
            self.connection.closed()

    def _attach(self, hub: HubConnection) -> None:
        if self._attached is not None and self._attached is not hub:
            self.left(self._attached)
        self._attached = hub
        self.connection.opened()

    def _answer(self, hub: HubConnection, frame: Frame) -> None:
        try:
            answer = self._on_request(frame.json())
        except MALFORMED as error:
            self._on_refused(error)
            answer = {"error": {"code": "malformed", "text": str(error)}}
        hub.pending += reply_frame(answer, frame.number).encode()
        if len(hub.pending) > MOST_PENDING:
            raise ProtocolError("it asks, and does not read the answers")

    def _accept(self, _: int) -> None:
        while len(self._hubs) >= MOST_VISITORS:  # one that asks comes with a connection of its own, and goes
            self.left(next(one for one in self._hubs.values() if one is not self._attached))
        try:
            sock, _address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        hub = HubConnection(self, sock)
        self._hubs[id(hub)] = hub

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.loop.later(0, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._attached is not None:
            try:
                self._attached.flush()
            except OSError:
                self.left(self._attached)
