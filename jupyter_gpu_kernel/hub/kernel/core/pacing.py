"""The rate at which the keeper's messages are passed on. Live messages are passed on at once, as long as the front ends
read. Messages that waited at the keeper (a replay) stay below jupyter_server's rate limit, as the rest would be
dropped.

Messages that wait here are not acknowledged, so the keeper sends no more than its window, and a killed hub loses
nothing. This module knows neither link nor sockets.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ....wire.kernel_messages.stream_output import split
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
    """The queue of the keeper's messages. `begin_replay` and `end_replay` say whether the rate is limited."""

    def __init__(
        self,
        pass_on: Callable[[Message], None],
        on_progress: Callable[[], None],
        log: logging.Logger,
        *,
        has_room: Callable[[Message], bool] = lambda message: True,
        rate_limited: Callable[[], bool] = lambda: True,
    ) -> None:
        """`pass_on(message)` is called in order, at once or later; `on_progress()` when fewer messages wait.
        `has_room(message)`: whether its recipients can receive more; `rate_limited()`: whether one of them drops
        messages above a rate."""
        self.waiting_by_lane = [0 for _ in Lane]
        """How many messages wait, per lane."""
        self.pieces = 0
        """How many pieces of the oldest message that waits were passed on, if it was split."""
        self._pass_on = pass_on
        self._on_progress = on_progress
        self._log = log
        self._has_room = has_room
        self._rate_limited = rate_limited
        self._pace = _Pace.LIVE
        self._queue: deque[_PacedMessage] = deque()
        self._size = 0
        self._due = 0.0
        self._stalled_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return sum(self.waiting_by_lane)

    @property
    def oldest(self) -> int:
        """The number of the oldest message that waits; 0 if no message waits."""
        return self._queue[0].number if self._queue else 0

    def begin_replay(self) -> None:
        """The messages that come now may have waited at the keeper."""
        self._limit_rate(_Pace.REPLAY)

    def end_replay(self) -> None:
        """The messages that come now are live. Those that wait are passed on at once, as far as they are read."""
        self._pace = _Pace.LIVE
        if self._timer is not None:
            self._timer.cancel()
            self._run()

    def keeper_changed(self) -> None:
        """The next messages have the numbering of a killed keeper's successor, which repeats those that wait here:
        acknowledge none of its messages before these are passed on."""
        self._queue = deque(waiting._replace(number=1) for waiting in self._queue)

    def flush(self) -> None:
        """Pass on all that wait at once, read or not: the next ones come from another keeper."""
        self._pace = _Pace.LIVE
        while self._queue:
            self._pass_on_next()
        self.end_replay()

    def put(self, message: Message, number: int, lane: Lane, pieces: int = 0) -> None:
        """Pass on a message, now or later. `number` and `lane`: those of its last chunk. `pieces`: how many pieces of
        the message a hub that was killed has passed on. Raise ProtocolError if more wait than a keeper may send without
        acknowledgement."""
        if self._pace is _Pace.LIVE and not self._queue and not pieces and self._has_room(message):
            return self._pass_on(message)
        msg_type = "" if message.channel is Channel.KEEPER else type_of(message)
        if lane is not Lane.ORDERED and self._has_room(message):
            return self._pass_on(message)
        self.waiting_by_lane[lane] += 1
        self.pieces = pieces or self.pieces
        whole = split(message, msg_type)
        for at, piece in list(enumerate(whole, 1))[min(pieces, len(whole) - 1) :]:
            paced = _PacedMessage(number, piece.unparsed(), lane, _seconds(piece, msg_type), at % len(whole))
            self._queue.append(paced)
            self._size += paced.size
        if self._timer is None:
            self._run()
        if self._size > MAX_WAITING:
            raise ProtocolError("the keeper sends more than was acknowledged")

    def close(self) -> None:
        """Drop all that wait."""
        self._queue.clear()
        self.waiting_by_lane, self._size = [0 for _ in Lane], 0
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        """Pass on the messages that are due."""
        self._timer = None
        while self._queue:
            delay = self._delay()
            if delay > 0:
                self._timer = asyncio.get_running_loop().call_later(delay, self._run)
                break
            self._pass_on_next()
        if not self._queue and self._pace is _Pace.CATCH_UP:
            self.end_replay()
        self._on_progress()

    def _delay(self) -> float:
        """Return the seconds until the next message may be passed on. A long stall begins a replay."""
        now = asyncio.get_running_loop().time()
        if not self._has_room(self._queue[0].message):
            self._stalled_since = self._stalled_since or now
            return min(max(POLL, (now - self._stalled_since) / 10), MAX_POLL)
        if self._stalled_since is not None and now - self._stalled_since > STALL and self._pace is _Pace.LIVE:
            self._limit_rate(_Pace.CATCH_UP)
        self._stalled_since = None
        early = self._due - now
        return early if self._pace is not _Pace.LIVE and early > BURST else 0.0

    def _limit_rate(self, pace: _Pace) -> None:
        self._pace = pace if self._rate_limited() else _Pace.LIVE

    def _pass_on_next(self) -> None:
        waiting = self._queue.popleft()
        self._size -= waiting.size
        self._due = max(self._due, asyncio.get_running_loop().time()) + waiting.seconds
        self.waiting_by_lane[waiting.lane] -= not waiting.pieces
        self.pieces = waiting.pieces
        try:
            self._pass_on(waiting.message)
        except Exception:  # a bug of ours costs this message, not those after it
            self._log.exception("a message was lost")


def _seconds(message: Message, msg_type: str) -> float:
    """Return the seconds in which no other message may follow this message, as jupyter_server counts."""
    if message.channel is not Channel.IOPUB or msg_type in _NOT_COUNTED:
        return 0.0
    size = sum(map(len, message.parts)) + 100 if msg_type == "stream" else 0
    return max(size / MAX_BYTES, 1 / MAX_MESSAGES)
