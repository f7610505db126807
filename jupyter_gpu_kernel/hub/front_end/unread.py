"""How much of what was given to a ZMQ socket its clients have not taken yet, in bytes.

libzmq does not tell, and counts messages for its own limit, at which it drops them. But it tells when it needs the
memory of a message no longer: that is when the last client has it. One message in every CHUNK bytes is watched, as
watching costs more than sending. This file knows neither messages nor front ends.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import zmq

from ...wire.frames import CHUNK

LIMIT = 4 * 1024 * 1024
"""Bytes beyond which there is no room: enough to keep any front end busy, little to hold for each."""


class Unread:
    """`watched(parts)` before they are sent; `room` says whether there is some."""

    def __init__(self) -> None:
        self._sent: list[tuple[zmq.MessageTracker, int]] = []
        self._size = 0
        self._unwatched: dict[int, int] = {}
        self._progress = time.monotonic()

    @property
    def size(self) -> int:
        """Bytes that the slowest client has not taken."""
        left = [(tracker, size) for tracker, size in self._sent if not tracker.done]
        if len(left) < len(self._sent) or not left:
            self._progress = time.monotonic()
        self._sent, self._size = left, sum(size for _, size in left)
        return self._size

    @property
    def room(self) -> bool:
        """Whether more may be sent."""
        return self._size < LIMIT or self.size < LIMIT

    @property
    def stalled(self) -> float:
        """Since when nothing was taken, though there was something: time.monotonic()."""
        return self._progress if self.size else time.monotonic()

    def watched(self, parts: Sequence[bytes], client: int) -> list[bytes | zmq.Frame]:
        """The parts of a message for this client, as they are to be sent; 0: for all clients."""
        size = self._unwatched.get(client, 0) + sum(map(len, parts))
        if size < CHUNK:
            self._unwatched[client] = size
            return list(parts)
        self._unwatched[client] = 0
        last = zmq.Frame(parts[-1], track=True, copy=False, copy_threshold=0)
        assert last.tracker is not None
        if not self._sent:
            self._progress = time.monotonic()
        self._sent.append((last.tracker, size))
        self._size += size
        return [*parts[:-1], last]
