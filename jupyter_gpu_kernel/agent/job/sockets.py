"""The socket of a job's process, and its connections: requests in, replies out. This module knows no jobs.

A request is a REQUEST frame with a JSON object; every reply to it is a REPLY frame with the request's number. Some
requests have more than one reply: events are reported as long as the connection is open.
"""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, Set

from ...wire.fields import FieldError
from ...wire.stream.frames import Frame, FrameError, Kind, reply_frame
from ..system.frame_connection import FrameConnection
from ..system.loop import Loop
from ..system.unix_sockets import listen

MAX_CONNECTIONS = 256
MAX_PENDING = 1 << 20
"""Bytes that a connection may leave unread."""


class JobClient(FrameConnection):
    """One accepted connection. A peer that does not read is disconnected."""

    def __init__(self, loop: Loop, sock: socket.socket, server: Server) -> None:
        super().__init__(loop, sock, server)
        self.number = 0
        """The number of the last request."""
        self._end = server.disconnected

    def reply(self, answer: Dict[str, Any]) -> None:
        """Send one more reply to the last request, unless the connection is closed."""
        self.pending += reply_frame(answer, self.number).encode()
        try:
            self.flush()
        except OSError:
            self._end(self)
        if len(self.pending) > MAX_PENDING:
            self._end(self)


class Server:
    """Listens at a path, in a folder of this user alone."""

    def __init__(
        self,
        loop: Loop,
        path: Path,
        on_request: Callable[[JobClient, Dict[str, Any]], None],
        on_close: Callable[[JobClient], None],
    ) -> None:
        self._loop = loop
        self._on_request = on_request
        self._on_close = on_close
        self._clients: Set[JobClient] = set()
        self._path = path
        self._sock = listen(path, 64)
        loop.watch(self._sock.fileno(), lambda _: self._accept())

    def close(self) -> None:
        """Accept no more connections."""
        self._loop.forget(self._sock.fileno())
        self._sock.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(str(self._path))

    def _accept(self) -> None:
        try:
            sock = self._sock.accept()[0]
        except OSError:  # the peer has gone, or there are no descriptors to be had
            return
        if len(self._clients) >= MAX_CONNECTIONS:
            return sock.close()
        self._clients.add(JobClient(self._loop, sock, self))

    # -------------------------------------------------------------------------------------- called by connections

    def received(self, connection: JobClient, frame: Frame) -> None:
        """A frame was received."""
        if frame.kind is Kind.REQUEST:
            connection.number = frame.number
            self._on_request(connection, frame.json())

    def due(self, connection: JobClient) -> bytes:
        """Only replies are written, when they are made."""
        return b""

    def disconnected(self, connection: JobClient) -> None:
        """The connection has ended."""
        connection.close()
        if connection in self._clients:
            self._clients.remove(connection)
            self._on_close(connection)

    def rejected(self, connection: JobClient, error: Exception) -> None:
        """Close the connection of a peer that sent something malformed. The job goes on."""
        if not isinstance(error, (FrameError, FieldError)):
            traceback.print_exception(type(error), error, error.__traceback__)
        self.disconnected(connection)
