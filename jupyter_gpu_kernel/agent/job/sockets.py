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
from typing import Any, Callable, Dict

import zmq

from ...wire.fields import FieldError
from ...wire.frames import FrameError, FrameReader, Kind, reply_frame
from ..loop import Loop
from ..unix_sockets import listen

MAX_CONNECTIONS = 256
MAX_PENDING = 1 << 20
"""Bytes that a connection may leave unread."""


class JobClient:
    """One accepted connection. It never blocks; a peer that does not read is disconnected."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_request: Callable[[JobClient, Dict[str, Any]], None],
        on_close: Callable[[JobClient], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._on_request = on_request
        self._on_close = on_close
        self._reader = FrameReader(greeting=False)
        self._pending = bytearray()
        self._number = 0  # of the last request
        sock.setblocking(False)
        loop.watch(sock.fileno(), self._ready)

    def reply(self, answer: Dict[str, Any]) -> None:
        """Send one more reply to the last request, unless the connection is closed."""
        if self._sock.fileno() < 0:
            return
        self._pending += reply_frame(answer, self._number).encode()
        self._flush()

    def close(self) -> None:
        """Close the connection, and call `on_close` once."""
        if self._sock.fileno() >= 0:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            self._on_close(self)

    def _ready(self, events: int) -> None:
        if events & zmq.POLLOUT:
            self._flush()
        if self._sock.fileno() < 0 or not events & (zmq.POLLIN | zmq.POLLERR):
            return
        try:
            data = self._sock.recv(65536)
            frames = self._reader.feed(data)
            for frame in frames:
                if frame.kind is Kind.REQUEST:
                    self._number = frame.number
                    self._on_request(self, frame.json())
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, FrameError, FieldError):
            return self.close()
        except Exception:  # whatever a peer sends, it ends this connection and not the job
            traceback.print_exc()
            return self.close()
        if not data:
            self.close()

    def _flush(self) -> None:
        try:
            while self._pending:
                del self._pending[: self._sock.send(self._pending)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            return self.close()
        if len(self._pending) > MAX_PENDING:
            return self.close()
        events = zmq.POLLIN | zmq.POLLOUT if self._pending else zmq.POLLIN
        self._loop.watch(self._sock.fileno(), self._ready, events)


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
        self._count = 0
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
        if self._count >= MAX_CONNECTIONS:
            return sock.close()
        self._count += 1
        JobClient(self._loop, sock, self._on_request, self._closed)

    def _closed(self, connection: JobClient) -> None:
        self._count -= 1
        self._on_close(connection)
