"""Bytes on their way from a stream that pushes them, perhaps in another thread, to the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Consumer(Protocol):
    """Takes bytes from any thread, but from one at a time. It returns at once."""

    @property
    def pending(self) -> int:
        """The bytes that it has not processed yet."""

    def feed(self, data: bytes, /) -> None:
        """Take the next bytes."""

    def end(self) -> None:
        """No more bytes come. May be called more than once, and from any thread."""


class Arrivals:
    """Keeps bytes until the event loop takes them, many small pieces as one."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake()`, from any thread, has `take` called on the loop."""
        self._wake = wake
        self._lock = threading.Lock()
        self._data = bytearray()
        self._taken = 0  # bytes that were taken and not processed
        self._waking = False
        self.ended = False

    @property
    def pending(self) -> int:
        """Bytes that the loop has not processed yet."""
        return len(self._data) + self._taken

    def feed(self, data: bytes) -> None:
        """Take bytes, from any thread."""
        with self._lock:
            self._data += data
            waking, self._waking = self._waking, True
        if not waking:
            self._wake()

    def end(self) -> None:
        """No more bytes come."""
        self.ended = True
        self._wake()

    def take(self) -> bytearray:
        """Return, on the loop, what has come since the last time."""
        with self._lock:
            data, self._data = self._data, bytearray()
            self._taken += len(data)
            self._waking = False
        return data

    def processed(self, size: int) -> None:
        """The loop has processed so many of the bytes that it took."""
        self._taken -= size
