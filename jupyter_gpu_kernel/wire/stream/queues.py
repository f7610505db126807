"""The queues of one direction: messages that wait, numbered chunks, chunks that are not acknowledged.

Chunks are numbered when they are sent, not when they are queued. So urgent messages overtake bulk, and what was sent
still has one order, which is repeated after a reconnect from the first number that the peer lacks. A message is kept
until its last chunk is acknowledged. Chunks for a slow path are compressed, if the peer can read that. This module
knows neither sockets nor Jupyter.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional

from ..messages import Data, Lane
from . import compression
from .compression import FASTEST, SLOW, Compressor
from .frames import CHUNK
from .window import MOST, Window

MAX_MESSAGE = 256 * 1024 * 1024
"""The size of one message, and of all incomplete messages of an attachment, in bytes.

A message that is passed on is in memory twice for a moment, and a hub has many kernels.
"""
OVERTAKING = 2 * CHUNK
"""Bytes of messages that overtake others, which may be sent although the window is full."""
_LAST = 0x80
COMPRESSED = 0x40
"""The flag of a chunk that is compressed."""


_LANES = tuple(Lane)


class NumberingError(Exception):
    """The peer's numbers of chunks contradict those of this end."""


class Chunk(NamedTuple):
    """A numbered piece of a message, at most CHUNK bytes. `flags` has its lane, whether it is the last one, and whether
    it is compressed."""

    number: int
    flags: int
    payload: bytes


class _QueuedMessage:
    """A message, its serial number in its lane, and how much of it was cut into chunks."""

    __slots__ = ("data", "lane", "offset", "serial")

    def __init__(self, lane: Lane, serial: int, data: bytes) -> None:
        self.lane = lane
        self.serial = serial
        self.data = data
        self.offset = 0


class _Sent(NamedTuple):
    """A chunk that is not acknowledged. `size`: the bytes of its piece of the message, before compression."""

    chunk: Chunk
    entry: _QueuedMessage
    size: int


class Outbox:
    """Messages to the peer, until they are acknowledged."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self.size = 0
        self.compresses = False
        """Whether the peer can read compressed chunks."""
        self._compressor = Compressor()
        self._compressing = False  # whether the last chunk was compressed
        self._lanes: Dict[Lane, Deque[_QueuedMessage]] = {lane: deque() for lane in Lane}
        self._serials = [0 for _ in Lane]  # of the next message in each lane
        self.serials = [0 for _ in Lane]
        """Per lane, the serial number of the oldest message that is not acknowledged, or of the next one."""
        self._sent: Deque[_Sent] = deque()  # in this stream, and not acknowledged
        self._resend: Deque[_Sent] = deque()  # not acknowledged when the stream ended: to be sent again
        self._in_flight = 0  # bytes of unacknowledged chunks as they were sent
        self._unread = 0  # bytes of unacknowledged chunks before compression
        self._number = 0

    def __repr__(self) -> str:
        waiting, kept = sum(map(len, self._lanes.values())), len(self._sent) + len(self._resend)
        return f"<Outbox waiting={waiting} unacknowledged={kept} next={self._number + 1}>"

    def restore(self, lane: Lane, first: int, messages: Iterable[bytes]) -> None:
        """Queue the messages that a predecessor has numbered from `first` on, and continue its numbers."""
        self._serials[lane] = self.serials[lane] = first
        for data in messages:
            self.put(lane, data)

    def put(self, lane: Lane, data: bytes) -> None:
        """Queue one message."""
        self.size += len(data)
        self._lanes[lane].append(_QueuedMessage(lane, self._serials[lane], data))
        self._serials[lane] += 1

    def take(self) -> Iterator[Chunk]:
        """Yield the chunks that may be sent now: first those to send again, then new ones while the window is open.

        Messages that overtake others do not wait for the window."""
        while self._resend:
            self._sent.append(self._resend.popleft())
            yield self._sent[-1].chunk
        while self.has_new:
            more = OVERTAKING if self._lanes[Lane.URGENT] or self._lanes[Lane.PROMPT] else 0
            if self._in_flight >= self._window.size + more:
                return self._window.full()
            if self._unread >= self._most_unread + more:
                return
            chunk = self._cut()
            self._window.sent(chunk.number)
            yield chunk

    @property
    def has_new(self) -> bool:
        """Whether messages wait that were not sent, or not completely."""
        return any(self._lanes.values())

    def acknowledge(self, number: int) -> None:
        """The peer has every chunk up to `number`."""
        if number > self._number:
            raise NumberingError(f"the peer acknowledges {number}, but only {self._number} were sent")
        before = self._in_flight
        for queue in (self._sent, self._resend):
            while queue and queue[0].chunk.number <= number:
                chunk, entry, size = queue.popleft()
                self._in_flight -= len(chunk.payload)
                self._unread -= size
                if chunk.flags & _LAST:
                    self.size -= len(entry.data)
                    self.serials[entry.lane] = entry.serial + 1
        self._window.acknowledged(number, before - self._in_flight)

    def resume(self, received: int) -> None:
        """There is a new stream to the same peer, which has every chunk up to `received`: send the rest again."""
        self.check(received)
        self._window.reset()
        self.acknowledge(received)
        self._resend = self._sent + self._resend
        self._sent = deque()

    def requeue(self) -> None:
        """Put the chunks that are to be sent again back into their messages.

        They get new numbers when they are sent, and urgent messages overtake them. Call it after `resume`, and only if
        the peer's `received` was exact.
        """
        while self._resend:
            chunk, entry, size = self._resend.pop()
            if chunk.flags & _LAST:  # else it is still the first of its lane
                self._lanes[entry.lane].appendleft(entry)
            entry.offset -= size
            self._in_flight -= len(chunk.payload)
            self._unread -= size
            self._number -= 1

    def check(self, received: int) -> None:
        """Raise NumberingError if a peer that has every chunk up to `received` cannot be sent the rest."""
        if received > self._number:
            raise NumberingError(f"the peer has {received} chunks, but only {self._number} were sent")
        held = self._sent or self._resend
        if received < self._number and (not held or held[0].chunk.number > received + 1):
            raise NumberingError(f"the peer lacks number {received + 1}, which is no longer held")

    @property
    def window(self) -> int:
        """The bytes of messages that may be unacknowledged at present."""
        return self._most_unread if self._compressing else self._window.size

    def restart(self, delivered: Optional[List[int]] = None) -> None:
        """The peer is a new one: put every message that was not acknowledged completely back into its lane.

        delivered: Per lane, the serial number up to which the peer's predecessor delivered messages all the same.
        """
        entries = {id(one.entry): one.entry for queue in (self._sent, self._resend) for one in queue}
        for queue in self._lanes.values():
            if queue and queue[0].offset:  # partly cut
                entry = queue.popleft()
                entries[id(entry)] = entry
        for entry in reversed(list(entries.values())):
            entry.offset = 0
            self._lanes[entry.lane].appendleft(entry)
        self._sent.clear()
        self._resend.clear()
        self._window.reset()
        self._in_flight = self._unread = self._number = 0
        for lane, serial in zip(Lane, delivered or []):
            queue = self._lanes[lane]
            while queue and queue[0].serial < serial:
                self.size -= len(queue.popleft().data)
                self.serials[lane] += 1

    def withdraw(self) -> List[bytes]:
        """Remove and return every message that was not acknowledged completely. There must be no stream."""
        self.restart()
        messages: List[bytes] = []
        for queue in self._lanes.values():
            messages += [entry.data for entry in queue]
            queue.clear()
        self.serials = list(self._serials)
        self.size = 0
        return messages

    @property
    def _most_unread(self) -> int:
        """The bytes, before compression, that may be unacknowledged: as if the path carried FASTEST."""
        size = self._window.size
        return max(size, min(MOST, int(size * FASTEST / self._window.rate)))

    def _cut(self) -> Chunk:
        """Return the next chunk of the message that goes first. There must be one."""
        queue = next(filter(None, self._lanes.values()))
        entry = queue[0]
        payload = entry.data[entry.offset : entry.offset + CHUNK]
        size = len(payload)
        compresses = self.compresses and _compressible(entry.lane, entry.offset) and self._window.rate < SLOW
        packed = self._compressor.compress(payload) if compresses else None
        entry.offset += size
        flags = int(entry.lane)
        self._compressing = packed is not None
        if packed is not None:
            payload, flags = packed, flags | COMPRESSED
        if entry.offset >= len(entry.data):
            flags |= _LAST
            queue.popleft()
        self._number += 1
        chunk = Chunk(self._number, flags, payload)
        self._sent.append(_Sent(chunk, entry, size))
        self._in_flight += len(payload)
        self._unread += size
        return chunk


def _compressible(lane: Lane, offset: int) -> bool:
    """Whether a chunk that begins at this offset of its message may be compressed."""
    return lane is Lane.ORDERED and offset < compression.MOST


class Inbox:
    """Chunks of the peer, each number once and in order, reassembled into messages."""

    def __init__(
        self,
        serials: Optional[List[int]] = None,
        known: Optional[List[int]] = None,
        *,
        decompresses: bool = False,
    ) -> None:
        """Begin with a peer's first chunk.

        serials: The serial numbers at which the peer's lanes begin.
        known: The messages below these serial numbers have come already, from the peer's killed predecessor. They are
            ignored.
        decompresses: Whether the peer may compress chunks.
        """
        self._flags = _LAST | COMPRESSED if decompresses else _LAST
        self.received = 0
        self.lane = Lane.ORDERED
        """The lane of the last chunk."""
        self._serials = list(serials or [0 for _ in Lane])
        self._known = list(known or [0 for _ in Lane])
        self._parts = {lane: bytearray() for lane in Lane}

    @property
    def delivered(self) -> List[int]:
        """Per lane, the serial number below which all messages have come."""
        return list(map(max, self._serials, self._known))

    @property
    def assembling(self) -> int:
        """Bytes of messages that are not complete yet."""
        return sum(map(len, self._parts.values()))

    def accept(self, number: int, flags: int, payload: bytes) -> Optional[Data]:
        """Return the message that this chunk completes. A number seen before is ignored; a gap is an error."""
        if number <= self.received:
            return None
        if number != self.received + 1:
            raise NumberingError(f"received {number}, expected {self.received + 1}")
        try:
            lane = _LANES[flags & ~self._flags]
            parts = self._parts[lane]
            if flags & COMPRESSED:
                if not _compressible(lane, len(parts)):
                    raise ValueError
                payload = compression.decompress(payload, CHUNK)
        except (IndexError, ValueError):
            raise NumberingError(f"chunk {number} cannot be read (flags {flags:#x})") from None
        if len(payload) > CHUNK or not (payload or flags & _LAST):
            raise NumberingError(f"chunk {number} has {len(payload)} bytes")
        if self.assembling + len(payload) > MAX_MESSAGE:
            raise NumberingError(f"a message of more than {MAX_MESSAGE} bytes")
        self.received, self.lane = number, lane
        if not flags & _LAST:
            parts += payload
            return None
        self._serials[lane] += 1
        if self._serials[lane] <= self._known[lane]:
            parts.clear()
            return None
        if not parts:
            return payload
        self._parts[lane] = bytearray()
        parts += payload
        return parts
