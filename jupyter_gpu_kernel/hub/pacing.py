"""The pace of a replay: what waited at the keeper is passed on below jupyter_server's rate limit, which would
drop the rest. Live messages pass at once.

What waits here is not acknowledged, so the keeper sends no more than its window and a killed hub loses nothing.
This file knows neither link nor sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ..wire.messages import Channel, Lane, Message, MessageError, lane_of
from ..wire.streams import split

BYTES = 750_000
MESSAGES = 750
"""A second. jupyter_server lets 1 MB of streams and 1000 messages pass, over 3 s; its clock is not ours."""
BURST = 0.05
"""Seconds' worth that may pass at once: a loop's timers are not finer."""
_FREE = ("status", "comm_open", "execute_input")


class _Held(NamedTuple):
    number: int
    message: Message
    seconds: float
    last: bool  # of the pieces that one message was cut into


class Pacer:
    """`take` every message; `begin` when the keeper may have kept some, `end` when those are through.

    `pass_on(message)` is called in order, at once or later; `passed()` when something was held and is no longer.
    """

    def __init__(
        self, pass_on: Callable[[Message], None], passed: Callable[[], None], log: logging.Logger
    ) -> None:
        self.paced = True  # False: this front end has no limit
        self.waiting = 0
        self._pass_on = pass_on
        self._passed = passed
        self._log = log
        self._replay = False
        self._queue: deque[_Held] = deque()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        """The number of the oldest message that waits here; 0: none does."""
        return self._queue[0].number if self._queue else 0

    def begin(self) -> None:
        """What comes now may be a replay."""
        self._replay = self.paced

    def end(self) -> None:
        """What comes now is live; what waits goes at once."""
        self._replay = False
        if self._timer is not None:
            self._timer.cancel()
            self._run()

    def take(self, message: Message, number: int) -> None:
        """A message whose last chunk has this number."""
        if not self._replay and not self._queue:
            return self._pass_on(message)
        msg_type = _type(message)
        if lane_of(message, msg_type) is not Lane.ORDERED:
            return self._pass_on(message)
        pieces = split(message, msg_type)
        self.waiting += 1
        for piece in pieces:
            self._queue.append(_Held(number, piece, _seconds(piece, msg_type), piece is pieces[-1]))
        if self._timer is None:
            self._run()

    def close(self) -> None:
        """Nothing more is passed on."""
        self._queue.clear()
        self.waiting = 0
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        """Passes on what is due."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._queue:
            if self._replay and (early := self._due - loop.time()) > BURST:
                self._timer = loop.call_later(early, self._run)
                break
            held = self._queue.popleft()
            self._due = max(self._due, loop.time()) + held.seconds
            self.waiting -= held.last
            try:
                self._pass_on(held.message)
            except Exception:  # a fault of ours costs this message, not those after it
                self._log.exception("a message was lost")
        self._passed()


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
