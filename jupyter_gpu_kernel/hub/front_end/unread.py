"""What the clients of one front end have not received yet: bytes in the buffers of libzmq, and early iopub output.

libzmq does not report how much it has buffered, and its own limit counts messages and drops those above it. But it
reports when it has released the memory of a message, which means that the last client has received it. One message in
every CHUNK bytes is tracked, as tracking costs more than sending.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import zmq

from ...wire.frames import CHUNK
from ...wire.messages import Message

LIMIT = 4 * 1024 * 1024
"""Bytes. At this limit no more is sent: it is enough to keep any front end busy, and little memory for each of them."""
SUBSCRIBE_TIMEOUT = 15.0
"""Seconds in which a running client should have subscribed again; until then the other clients wait for it."""


class UnreadBytes:
    """The bytes that were given to one ZeroMQ socket and that its clients have not received yet."""

    def __init__(self) -> None:
        self._tracked: list[tuple[zmq.MessageTracker, int]] = []
        self._size = 0
        self._untracked: dict[int, int] = {}  # bytes since the last tracked message, by client
        self._progress = time.monotonic()

    @property
    def size(self) -> int:
        """The bytes that the slowest client has not received."""
        left = [(tracker, size) for tracker, size in self._tracked if not tracker.done]
        if len(left) < len(self._tracked) or not left:
            self._progress = time.monotonic()
        self._tracked, self._size = left, sum(size for _, size in left)
        return self._size

    @property
    def has_room(self) -> bool:
        """Whether more may be sent."""
        return self._size < LIMIT or self.size < LIMIT

    @property
    def stalled_since(self) -> float:
        """The time (time.monotonic()) since which clients have received nothing although there is something."""
        return self._progress if self.size else time.monotonic()

    def track(self, parts: Sequence[bytes], client: int) -> list[bytes | zmq.Frame]:
        """Count a message for this client (0: for all clients). Return the parts to give to the socket."""
        size = self._untracked.get(client, 0) + sum(map(len, parts))
        if size < CHUNK:
            self._untracked[client] = size
            return list(parts)
        self._untracked[client] = 0
        last = zmq.Frame(parts[-1], track=True, copy=False, copy_threshold=0)
        assert last.tracker is not None
        if not self._tracked:
            self._progress = time.monotonic()
        self._tracked.append((last.tracker, size))
        self._size += size
        return [*parts[:-1], last]


class EarlyOutput:
    """The iopub messages that wait until the clients of a killed hub have subscribed to its successor.

    A client's socket subscribes again when its program next uses it, which may be long after the hub has bound the
    port.
    """

    def __init__(self, expected: bool) -> None:
        """`expected`: whether there are such clients. If not, nothing is kept."""
        self._messages: list[Message] | None = [] if expected else None
        self._deadline = time.monotonic() + SUBSCRIBE_TIMEOUT
        self._size = 0

    @property
    def has_room(self) -> bool:
        """Whether more messages may come."""
        return self._size < LIMIT or self._is_late

    @property
    def overflowed(self) -> bool:
        """Whether more than the limit waits for a client that has not subscribed in time."""
        return self._size >= LIMIT and self._is_late

    def keep(self, message: Message) -> bool:
        """Return whether this message waits here."""
        if self._messages is None:
            return False
        self._messages.append(message.unparsed())
        self._size += sum(map(len, message.parts))
        return True

    def release(self) -> list[Message]:
        """Return all messages that wait, in order. From now on none is kept."""
        messages, self._messages, self._size = self._messages or [], None, 0
        return messages

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline
