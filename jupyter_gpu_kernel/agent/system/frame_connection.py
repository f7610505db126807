"""An accepted connection on which frames pass, in the event loop of a keeper or of a job's process.

This module does not know what the frames mean.
"""

from __future__ import annotations

import socket
from typing import Any, Protocol, Tuple

import zmq

from ...wire.stream.frames import CHUNK, Frame, FrameReader
from .loop import Loop

_READABLE = int(zmq.POLLIN | zmq.POLLERR)
_TURN = 4
"""How many pieces, each of about a chunk, are written to one connection before the next one has its turn."""


class FrameServer(Protocol):
    """What accepts connections. Each method gets the FrameConnection that calls it."""

    def received(self, connection: Any, frame: Frame) -> None:
        """Take a frame. An exception ends the connection: see `rejected`."""

    def due(self, connection: Any) -> Tuple[bytes, bool]:
        """Return what is to be written behind what is pending, about one chunk, and whether more may be due then."""

    def disconnected(self, connection: Any) -> None:
        """The connection has ended, and is to be closed."""

    def rejected(self, connection: Any, error: Exception) -> None:
        """The connection is to be closed, because of what the peer sent."""


class FrameConnection:
    """One accepted connection: reads frames, writes what is due, and never blocks."""

    def __init__(self, loop: Loop, sock: socket.socket, server: FrameServer) -> None:
        self.sock = sock
        self.pending = bytearray()
        self._loop = loop
        self._server = server
        self._reader = FrameReader(greeting=False)
        self._writing = False
        sock.setblocking(False)
        loop.watch(sock.fileno(), self._ready)

    def _ready(self, events: int) -> None:
        try:
            if events & _READABLE:
                data = self.sock.recv(CHUNK)
                if not data:
                    return self._server.disconnected(self)
                for frame in self._reader.feed(data):
                    self._server.received(self, frame)
            self.flush()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._server.disconnected(self)  # a hub connects again and resumes
        except Exception as error:  # whatever a client sends, it ends this connection and not the process
            self._server.rejected(self, error)

    def flush(self, most: int = _TURN) -> None:
        """Write what the socket takes, at most so many pieces; the rest follows when the socket is writable again."""
        if self.sock.fileno() < 0:
            return
        more = True
        for _ in range(most):
            more = self._fill()
            try:
                if self.pending:
                    del self.pending[: self.sock.send(self.pending)]
            except (BlockingIOError, InterruptedError):
                more = True
                break
            more = more or bool(self.pending)
            if not more:
                break
        if more != self._writing:
            self._writing = not self._writing
            events = zmq.POLLIN | zmq.POLLOUT if self._writing else zmq.POLLIN
            self._loop.watch(self.sock.fileno(), self._ready, events)

    def _fill(self) -> bool:
        """Add what is due, if there is room. Return whether more may be due."""
        if len(self.pending) >= CHUNK:
            return True
        data, more = self._server.due(self)
        self.pending += data
        return more

    def close(self) -> None:
        """Close the socket."""
        if self.sock.fileno() >= 0:
            self._loop.forget(self.sock.fileno())
            self.sock.close()
