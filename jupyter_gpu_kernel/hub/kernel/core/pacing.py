"""The rate at which the keeper's messages are passed on. Live messages are passed on at once, as long as the front ends
read. Messages that waited at the keeper (a replay) stay below jupyter_server's rate limit, as the rest would be
dropped.

Messages that wait here are not acknowledged, so the keeper sends no more than its window, and a killed hub loses
nothing. This module knows neither link nor sockets.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ....wire.kernel_messages.compose import split
from ....wire.messages import Channel, Lane, Message, type_of
from ....wire.stream.endpoint import ProtocolError
from ....wire.stream.queues import MAX_MESSAGE
from ....wire.stream.window import MOST

MAX_BYTES = 750_000
MAX_MESSAGES = 750
"""Per second. jupyter_server allows 1 MB of streams and 1000 messages, over 3 s, by a clock of its own."""
BURST = 0.05
"""Seconds' worth that may be passed on at once: an event loop's timers are not finer."""
POLL, MAX_POLL = 0.01, 0.25
"""Seconds until a front end that does not read is checked again; the delay grows."""
STALL = 2.0
"""Seconds after which messages that a front end did not read are a replay for it."""
MAX_WAITING = MAX_MESSAGE + 2 * MOST
"""Bytes that may wait: a keeper's window, in which one message may be the largest. No keeper sends more."""
_OVERHEAD = 512
"""Bytes of memory for a message besides its parts."""
_NOT_COUNTED = ("status", "comm_open", "execute_input")


class _Pace(enum.Enum):
    LIVE = "live"
    REPLAY = "replay"
    """At a limited rate, until the keeper says that the replay ends."""
    CATCH_UP = "catch up"
    """At a limited rate, until nothing waits: a front end had not read for a while."""


class _PacedMessage(NamedTuple):
    number: int
    message: Message
    lane: Lane
    seconds: float
    pieces: int  # of a message that was split: how many were passed on with this one; 0: all

    @property
    def size(self) -> int:
        return sum(map(len, self.message.parts)) + _OVERHEAD


class Pacer:
    """The queue of the keeper's messages. `begin_replay` and `end_replay` say whether the rate is limited. `put` and
    `next` are given the time in seconds, and whether the recipients of a message can receive more."""

    def __init__(self) -> None:
        self.waiting_by_lane = [0 for _ in Lane]
        """How many messages wait, per lane."""
        self.pieces = 0
        """How many pieces of the oldest message that waits were passed on, if it was split."""
        self.look_at: float | None = None
        """When `next` is to be called; None: not before the next `put`."""
        self._pace = _Pace.LIVE
        self._queue: deque[_PacedMessage] = deque()
        self._size = 0
        self._due = 0.0
        self._stalled_since: float | None = None

    def __repr__(self) -> str:
        return f"<Pacer {self._pace.value} waiting={self.waiting_by_lane} {self._size} bytes>"

    def validate(self) -> None:
        """Raise AssertionError if what waits and what is known of it contradict each other, which is a bug."""
        assert self._size == sum(one.size for one in self._queue), self
        assert sum(self.waiting_by_lane) == sum(not one.pieces for one in self._queue), self
        assert (self.look_at is not None) == bool(self._queue), self

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return sum(self.waiting_by_lane)

    @property
    def oldest(self) -> int:
        """The number of the oldest message that waits; 0 if no message waits."""
        return self._queue[0].number if self._queue else 0

    @property
    def next_message(self) -> Message | None:
        """The oldest message that waits."""
        return self._queue[0].message if self._queue else None

    def begin_replay(self, *, rate_limited: bool) -> None:
        """The messages that come now may have waited at the keeper. `rate_limited`: whether a front end drops messages
        above a rate."""
        self._pace = _Pace.REPLAY if rate_limited else _Pace.LIVE

    def end_replay(self) -> None:
        """The messages that come now are live. Those that wait are passed on at once, as far as they are read."""
        self._pace = _Pace.LIVE
        self.look_at = 0.0 if self._queue else None

    def keeper_changed(self) -> None:
        """The next messages have the numbering of a killed keeper's successor, which repeats those that wait here:
        acknowledge none of its messages before these are passed on."""
        self._queue = deque(waiting._replace(number=1) for waiting in self._queue)

    def put(self, message: Message, number: int, lane: Lane, pieces: int, has_room: bool, now: float) -> bool:
        """Take a message that has come: see `Arrived`. Return whether it is passed on at once; else it waits. Raise
        ProtocolError if more wait than a keeper may send without acknowledgement."""
        msg_type = "" if message.channel is Channel.KEEPER else type_of(message)
        whole = split(message, msg_type)  # always: from the next hub it must not come in another way
        at_once = self._pace is _Pace.LIVE and not self._queue and len(whole) == 1
        if has_room and (at_once or lane is not Lane.ORDERED):
            return True
        self.waiting_by_lane[lane] += 1
        self.pieces = pieces or self.pieces
        for at, piece in list(enumerate(whole, 1))[min(pieces, len(whole) - 1) :]:
            seconds = _seconds(piece, msg_type)
            paced = _PacedMessage(number, piece.unparsed(), lane, seconds, at % len(whole))
            self._queue.append(paced)
            self._size += paced.size
        if self.look_at is None:
            self.look_at = now
        if self._size > MAX_WAITING:
            raise ProtocolError("the keeper sends more than was acknowledged")
        return False

    def next(self, now: float, *, has_room: bool, rate_limited: bool) -> Message | None:
        """Return the oldest message if it may be passed on now. Else `look_at` says when it may be."""
        self.look_at = None
        if not self._queue:
            return None
        delay = self._delay(now, has_room, rate_limited)
        if delay > 0:
            self.look_at = now + delay
            return None
        return self._pop(now)

    def flush(self, now: float) -> Iterator[Message]:
        """Yield all that wait, read or not: the next ones come from another keeper."""
        self._pace = _Pace.LIVE
        while self._queue:
            yield self._pop(now)
        self.end_replay()

    def close(self) -> None:
        """Drop all that wait."""
        self._queue.clear()
        self.waiting_by_lane, self._size, self.look_at = [0 for _ in Lane], 0, None

    def _delay(self, now: float, has_room: bool, rate_limited: bool) -> float:
        """Return the seconds until the next message may be passed on. A long stall begins a replay."""
        if not has_room:
            self._stalled_since = self._stalled_since or now
            return min(max(POLL, (now - self._stalled_since) / 10), MAX_POLL)
        stalled = self._stalled_since is not None and now - self._stalled_since > STALL
        if stalled and self._pace is _Pace.LIVE and rate_limited:
            self._pace = _Pace.CATCH_UP
        self._stalled_since = None
        early = self._due - now
        return early if self._pace is not _Pace.LIVE and early > BURST else 0.0

    def _pop(self, now: float) -> Message:
        waiting = self._queue.popleft()
        self._size -= waiting.size
        self._due = max(self._due, now) + waiting.seconds
        self.waiting_by_lane[waiting.lane] -= not waiting.pieces
        self.pieces = waiting.pieces
        if self._queue:
            self.look_at = now
        elif self._pace is _Pace.CATCH_UP:
            self._pace = _Pace.LIVE
        return waiting.message


def _seconds(message: Message, msg_type: str) -> float:
    """Return the seconds in which no other message may follow this message, as jupyter_server counts."""
    if message.channel is not Channel.IOPUB or msg_type in _NOT_COUNTED:
        return 0.0
    size = sum(map(len, message.parts)) + 100 if msg_type == "stream" else 0
    return max(size / MAX_BYTES, 1 / MAX_MESSAGES)
