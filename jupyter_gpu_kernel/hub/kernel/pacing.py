"""The pace at which messages are passed on: live ones at once, as long as the front ends read; what waited at the
keeper below jupyter_server's rate limit, which would drop the rest.

What waits here is not acknowledged, so the keeper sends no more than its window and a killed hub loses nothing.
This file knows neither link nor sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ...wire.endpoint import ProtocolError
from ...wire.messages import Channel, Lane, Message, MessageError, lane_of
from ...wire.queues import MAX_MESSAGE, WINDOW
from ...wire.streams import split

BYTES = 750_000
MESSAGES = 750
"""A second. jupyter_server lets 1 MB of streams and 1000 messages pass, over 3 s; its clock is not ours."""
BURST = 0.05
"""Seconds' worth that may pass at once: a loop's timers are not finer."""
POLL, POLL_SELDOM = 0.01, 0.25
"""Seconds until a front end that does not read is looked at again; the longer it lasts, the more seldom."""
STALLED = 2.0
"""Seconds after which what a front end did not read is a replay for it."""
MOST = MAX_MESSAGE + 2 * WINDOW
"""Bytes that may wait: a keeper's window, of which one message may be the largest. No keeper sends more."""
_OVERHEAD = 512
"""Bytes of memory for a message besides its parts."""
_FREE = ("status", "comm_open", "execute_input")


class _Held(NamedTuple):
    number: int
    message: Message
    lane: Lane
    seconds: float
    last: bool  # of the pieces that one message was cut into

    @property
    def size(self) -> int:
        return sum(map(len, self.message.parts)) + _OVERHEAD


class Pacer:
    """`take` every message; `begin` when the keeper may have kept some, `end` when those are through.

    `pass_on(message)` is called in order, at once or later; `passed()` when something was held and is no longer;
    `room(message)` says whether whoever it is for takes more.
    """

    def __init__(
        self,
        pass_on: Callable[[Message], None],
        passed: Callable[[], None],
        log: logging.Logger,
        room: Callable[[Message], bool] = lambda message: True,
    ) -> None:
        self.paced = True  # False: this front end has no limit
        self.owed = [0 for _ in Lane]
        """Per lane, how many messages wait."""
        self._pass_on = pass_on
        self._passed = passed
        self._log = log
        self._room = room
        self._replay = False
        self._queue: deque[_Held] = deque()
        self._size = 0
        self._due = 0.0
        self._stalled: float | None = None  # since when
        self._until_empty = False  # the replay is what a front end did not read
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return sum(self.owed)

    @property
    def held(self) -> int:
        """The number of the oldest message that waits here; 0: none does."""
        return self._queue[0].number if self._queue else 0

    def begin(self) -> None:
        """What comes now may be a replay."""
        self._replay, self._until_empty = self.paced, False

    def end(self) -> None:
        """What comes now is live; what waits goes at once, as far as it is read."""
        self._replay = self._until_empty = False
        if self._timer is not None:
            self._timer.cancel()
            self._run()

    def flush(self) -> None:
        """What waits goes at once, read or not: what comes now is from another keeper."""
        self._replay = False
        while self._queue:
            self._next()
        self.end()

    def take(self, message: Message, number: int) -> None:
        """A message whose last chunk has this number. ProtocolError: no keeper sends as much ahead."""
        if not self._replay and not self._queue and self._room(message):
            return self._pass_on(message)
        msg_type = _type(message)
        lane = lane_of(message, msg_type)
        if lane is not Lane.ORDERED and self._room(message):
            return self._pass_on(message)
        if (
            self._queue and number <= self._queue[-1].number
        ):  # another numbering: a killed keeper's successor's
            self._queue = deque(held._replace(number=number) for held in self._queue)
        pieces = split(message, msg_type)
        self.owed[lane] += 1
        for piece in pieces:
            held = _Held(number, piece.unparsed(), lane, _seconds(piece, msg_type), piece is pieces[-1])
            self._queue.append(held)
            self._size += held.size
        if self._timer is None:
            self._run()
        if self._size > MOST:
            raise ProtocolError("the keeper sends more than was acknowledged")

    def close(self) -> None:
        """Nothing more is passed on."""
        self._queue.clear()
        self.owed, self._size = [0 for _ in Lane], 0
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        """Passes on what is due."""
        self._timer = None
        while self._queue:
            pause = self._pause()
            if pause > 0:
                self._timer = asyncio.get_running_loop().call_later(pause, self._run)
                break
            self._next()
        if not self._queue and self._until_empty:
            self.end()
        self._passed()

    def _pause(self) -> float:
        """Seconds until the next one may go; what a front end did not read for long is a replay from then on."""
        now = asyncio.get_running_loop().time()
        if not self._room(self._queue[0].message):
            self._stalled = self._stalled or now
            return min(max(POLL, (now - self._stalled) / 10), POLL_SELDOM)
        if self._stalled is not None and now - self._stalled > STALLED and not self._replay:
            self.begin()
            self._until_empty = True
        self._stalled = None
        early = self._due - now
        return early if self._replay and early > BURST else 0.0

    def _next(self) -> None:
        held = self._queue.popleft()
        self._size -= held.size
        self._due = max(self._due, asyncio.get_running_loop().time()) + held.seconds
        self.owed[held.lane] -= held.last
        try:
            self._pass_on(held.message)
        except Exception:  # a fault of ours costs this message, not those after it
            self._log.exception("a message was lost")


def _type(message: Message) -> str:
    if message.channel is Channel.KEEPER:
        return ""
    try:
        return str(message.header().get("msg_type"))
    except MessageError:
        return ""


def _seconds(message: Message, msg_type: str) -> float:
    """How long the limit lets nothing follow this message: as jupyter_server counts."""
    if message.channel is not Channel.IOPUB or msg_type in _FREE:
        return 0.0
    size = sum(map(len, message.parts)) + 100 if msg_type == "stream" else 0
    return max(size / BYTES, 1 / MESSAGES)
