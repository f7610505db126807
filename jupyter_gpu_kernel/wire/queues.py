"""The journal of one direction: messages waiting, chunks numbered, chunks not yet acknowledged.

Chunks are numbered when they are sent, not when they are queued: so urgent messages overtake bulk, and yet
what was sent has one order, which a reconnect repeats from the first number that the peer lacks.
A message is kept until its last chunk is acknowledged. This file knows neither sockets nor Jupyter.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .frames import CHUNK
from .messages import Lane

WINDOW = 2 * 1024 * 1024
"""Bytes that may be on their way unacknowledged: more would only queue where nothing can overtake."""
MAX_MESSAGE = 256 * 1024 * 1024
"""Bytes of one message, and of all messages of an attachment that have not wholly come. Whoever passes a message on has
it in memory up to three times for a moment, and a hub has many kernels."""
_LAST = 0x80


class NumberingError(Exception):
    """The peer's numbers and ours cannot both be right."""


class Chunk(NamedTuple):
    """A numbered piece of a message: at most CHUNK bytes, `flags` holding its lane and whether it is the
    last."""

    number: int
    flags: int
    payload: bytes


class _Entry:
    """A message, its place among all of its lane, and how far it has been cut."""

    __slots__ = ("data", "lane", "offset", "serial")

    def __init__(self, lane: Lane, serial: int, data: bytes) -> None:
        self.lane = lane
        self.serial = serial
        self.data = data
        self.offset = 0


class Outbox:
    """What we owe to the peer."""

    def __init__(self, window: int = WINDOW) -> None:
        self.window = window
        self.size = 0
        self._lanes: Dict[Lane, Deque[_Entry]] = {lane: deque() for lane in Lane}
        self._serials = [0 for _ in Lane]  # of the next message put into each lane
        self._sent: Deque[Tuple[Chunk, _Entry]] = deque()
        self._unsent = 0  # how many chunks at the end of _sent wait to be sent again
        self._in_flight = 0
        self._number = 0

    def __repr__(self) -> str:
        waiting = sum(map(len, self._lanes.values()))
        return f"<Outbox waiting={waiting} unacknowledged={len(self._sent)} next={self._number + 1}>"

    def count_from(self, serial: int) -> None:
        """Before the first message: whoever heard another sender of the same name must not take ours for its."""
        self._serials = [serial for _ in Lane]

    def put(self, lane: Lane, data: bytes) -> None:
        """Queues one message."""
        self.size += len(data)
        self._lanes[lane].append(_Entry(lane, self._serials[lane], data))
        self._serials[lane] += 1

    def take(self) -> Iterator[Chunk]:
        """The chunks that may be sent now: first those to repeat, then new ones while the window is open."""
        while self._unsent:
            chunk, _ = self._sent[-self._unsent]
            self._unsent -= 1
            yield chunk
        while self._in_flight < self.window:
            chunk_or_none = self._cut()
            if chunk_or_none is None:
                return
            yield chunk_or_none

    def acknowledge(self, number: int) -> None:
        """The peer has everything up to `number`."""
        if number > self._number:
            raise NumberingError(f"the peer acknowledges {number}, but only {self._number} were sent")
        while self._sent and self._sent[0][0].number <= number:
            chunk, entry = self._sent.popleft()
            self._in_flight -= len(chunk.payload)
            if chunk.flags & _LAST:
                self.size -= len(entry.data)
        self._unsent = min(self._unsent, len(self._sent))

    def resume(self, received: int) -> None:
        """A new stream to the same peer, which has everything up to `received`: the rest is sent again."""
        self.check(received)
        self.acknowledge(received)
        self._unsent = len(self._sent)

    def put_back(self) -> None:
        """After `resume`, if the peer has told exactly what it has: what it lacks is numbered anew when it is sent, and
        urgent messages overtake it."""
        while self._unsent:
            chunk, entry = self._sent.pop()
            if chunk.flags & _LAST:  # else it is still the first of its lane
                self._lanes[entry.lane].appendleft(entry)
            entry.offset -= len(chunk.payload)
            self._in_flight -= len(chunk.payload)
            self._number -= 1
            self._unsent -= 1

    def check(self, received: int) -> None:
        """JournalError if a peer that has everything up to `received` cannot be sent the rest."""
        if received > self._number:
            raise NumberingError(f"the peer has {received} chunks, but only {self._number} were sent")
        if received < self._number and (not self._sent or self._sent[0][0].number > received + 1):
            raise NumberingError(f"the peer lacks number {received + 1}, which is no longer held")

    @property
    def serials(self) -> List[int]:
        """Per lane, the serial of the next message that is sent for the first time."""
        return [self._lanes[lane][0].serial if self._lanes[lane] else self._serials[lane] for lane in Lane]

    def restart(self, delivered: Optional[List[int]] = None) -> None:
        """A new peer: every message not wholly acknowledged goes back to its place.

        `delivered`: per lane the serial up to which its predecessor passed messages on all the same.
        """
        again = {id(entry): entry for _, entry in self._sent}
        for queue in self._lanes.values():
            if queue and queue[0].offset:  # partly cut
                entry = queue.popleft()
                again[id(entry)] = entry
        for entry in reversed(list(again.values())):
            entry.offset = 0
            self._lanes[entry.lane].appendleft(entry)
        self._sent.clear()
        self._unsent = self._in_flight = self._number = 0
        for lane, serial in zip(Lane, delivered or []):
            queue = self._lanes[lane]
            while queue and queue[0].serial < serial:
                self.size -= len(queue.popleft().data)

    def withdraw(self) -> List[bytes]:
        """Takes out every message not wholly acknowledged; to be called while there is no stream."""
        self.restart()
        messages: List[bytes] = []
        for queue in self._lanes.values():
            messages += [entry.data for entry in queue]
            queue.clear()
        self.size = 0
        return messages

    def _cut(self) -> Optional[Chunk]:
        for lane in Lane:
            queue = self._lanes[lane]
            if queue:
                break
        else:
            return None
        entry = queue[0]
        payload = entry.data[entry.offset : entry.offset + CHUNK]
        entry.offset += len(payload)
        flags = int(lane)
        if entry.offset >= len(entry.data):
            flags |= _LAST
            queue.popleft()
        self._number += 1
        chunk = Chunk(self._number, flags, payload)
        self._sent.append((chunk, entry))
        self._in_flight += len(payload)
        return chunk


class Inbox:
    """What the peer has sent: every number once, in order, put together to messages."""

    def __init__(self, serials: Optional[List[int]] = None) -> None:
        """`serials`: where the peer's lanes begin; then `delivered` counts on from there."""
        self.received = 0
        self.delivered = list(serials or [0 for _ in Lane])
        self._parts = {lane: bytearray() for lane in Lane}

    def accept(self, number: int, flags: int, payload: bytes) -> Optional[bytes]:
        """The message that this chunk completes. A number seen before is passed over; a gap is an error."""
        if number <= self.received:
            return None
        if number != self.received + 1:
            raise NumberingError(f"number {number} came where {self.received + 1} was due")
        try:
            lane = Lane(flags & ~_LAST)
        except ValueError:
            raise NumberingError(f"chunk {number} has unknown flags {flags:#x}") from None
        parts = self._parts[lane]
        if len(payload) > CHUNK or not (payload or flags & _LAST):
            raise NumberingError(f"chunk {number} has {len(payload)} bytes")
        if sum(map(len, self._parts.values())) + len(payload) > MAX_MESSAGE:
            raise NumberingError(f"a message of more than {MAX_MESSAGE} bytes")
        self.received = number
        parts += payload
        if not flags & _LAST:
            return None
        self.delivered[lane] += 1
        self._parts[lane] = bytearray()
        return bytes(parts)
