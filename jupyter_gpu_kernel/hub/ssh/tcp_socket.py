"""A TCP connection that threads read at first, and an event loop afterwards. This module knows no SSH."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import sys

from .pushing import Consumer

_MIN_READ_SIZE = 4 * 1024
_READ_SIZE = 256 * 1024
_MAX_TURN = 0.005
"""Seconds that the loop spends with what it has read at once: tiny packets take much longer than large ones."""
_MAX_PENDING = 1024 * 1024
"""Bytes that the consumer has not processed. Beyond that nothing more is read from the network."""
_SENDABLE = 5000 if sys.platform == "linux" else 2000
"""Bytes that the system takes at once if it takes any: a third of the smallest buffer, or SO_SNDLOWAT."""


class TcpSocket(socket.socket):
    """A TCP connection, which an event loop reads once `use_loop` was called."""

    _loop: asyncio.AbstractEventLoop | None = None
    _consumer: Consumer | None = None
    _paused = False
    _read_size = 4 * _MIN_READ_SIZE

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that reads for the consumer."""
        self._loop = loop

    def pass_on(self, consumer: Consumer) -> None:
        """Give this consumer everything."""
        assert self._loop is not None
        self._consumer = consumer
        self._loop.call_soon_threadsafe(self._watch)

    def consumed(self, size: int) -> None:
        """Go on to read, if the consumer had too much."""
        if self._paused and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._resume)

    def close(self) -> None:
        """Close the connection. A loop that reads it forgets it first, before the system uses its number again."""
        if self._consumer is None or self._loop is None:
            return super().close()
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop is closed
            super().close()
            self._consumer.end()

    def begin_sending(self, size: int) -> bool:
        """Whether so many bytes can be sent without waiting."""
        if size > _SENDABLE:
            return False
        try:
            if sys.platform == "win32":
                return bool(select.select([], [self], [], 0)[1])
            poll = select.poll()
            poll.register(self, select.POLLOUT)
            return any(events == select.POLLOUT for _, events in poll.poll(0))
        except (OSError, ValueError):  # closed
            return False

    def end_sending(self) -> None:
        """Others may send again."""

    def _watch(self) -> None:
        if self._loop is not None and self.fileno() >= 0:
            self._loop.add_reader(self, self._readable)

    def _readable(self) -> None:
        assert self._consumer is not None and self._loop is not None
        try:
            data = self.recv(self._read_size)
        except (BlockingIOError, InterruptedError, TimeoutError):
            return
        except OSError:
            data = b""
        if not data:
            return self._end()
        since = self._loop.time()
        self._consumer.feed(data)
        self._adapt(len(data), self._loop.time() - since)
        if self._consumer.pending > _MAX_PENDING:
            self._paused = True
            self._loop.remove_reader(self)
            self.consumed(0)  # meanwhile it may have gone on

    def _adapt(self, size: int, seconds: float) -> None:
        """Read less at once if this much took too long, and more if there is more to read and it was quick."""
        if seconds > _MAX_TURN:
            self._read_size = max(self._read_size // 2, _MIN_READ_SIZE)
        elif size == self._read_size and seconds < _MAX_TURN / 4:
            self._read_size = min(self._read_size * 2, _READ_SIZE)

    def _resume(self) -> None:
        if self._paused and self._consumer is not None and self._consumer.pending <= _MAX_PENDING:
            self._paused = False
            self._watch()

    def _end(self) -> None:
        if self._loop is not None and self.fileno() >= 0:
            self._loop.remove_reader(self)
            super().close()
        if self._consumer is not None:
            self._consumer.end()
