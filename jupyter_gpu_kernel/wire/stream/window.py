"""The number of bytes that may be unacknowledged: as many as the path to the peer holds, and a few milliseconds' worth.

With less, the path would be idle while acknowledgements are under way. With more, the rest waits in buffers, where
control messages cannot overtake it. A round begins when a chunk is sent, if possible the last one that the window
allows, and ends with its acknowledgement. The shortest round is the path's delay. In longer rounds, the rest of the
time was spent in buffers. What was acknowledged in a round is the rate. At the start of a transfer TCP itself doubles
its rate in every round, and so does the window, until the rate no longer grows or chunks wait in buffers. This module
knows neither chunks nor sockets.
"""

from __future__ import annotations

from typing import Callable

START = 256 * 1024
LEAST = 128 * 1024
MOST = 16 * 1024 * 1024
"""Bytes: 80 ms of a path with 200 MB/s."""
_WAITING = 0.015
_WAITING_PART = 0.125
"""Seconds, or this part of the delay if that is more, that a chunk should wait in buffers: then they are never empty,
and a control message waits no longer."""
_START_UP = 2.0
_GROWTH = 1.25
_FLAT_ROUNDS = 3
"""The start-up has ended when the rate was not _GROWTH times the best one in so many rounds, or in one with a queue."""
_SHRINK = 0.7
"""The least factor of one round: a round is long, too, when a processor was busy elsewhere."""
_FORGET = 10.0
"""Seconds after which the delay is measured anew, in a round with the smallest window: the path may be another one."""
_IDLE = 1.0
"""Seconds without a chunk after which TCP starts anew, too."""


class Window:
    """`size` follows the path. The owner reports `sent`, `full` and `acknowledged`, and each new stream by `reset`."""

    def __init__(
        self, clock: Callable[[], float], start: int = START, least: int = LEAST, most: int = MOST
    ) -> None:
        self._clock = clock
        self._start, self._least, self._most = start, least, most
        self._acknowledged = 0
        self.reset()

    @property
    def size(self) -> int:
        """The window in bytes."""
        return self._least if self._measuring else self._size

    @property
    def rate(self) -> float:
        """The bytes per second that the window allows; infinite while the delay is not known."""
        return self.size / self._delay if self._delay < float("inf") else float("inf")

    def reset(self) -> None:
        """The stream is a new one, and perhaps its path, too."""
        self._delay = self._newer_delay = float("inf")
        self._newer_since = self._last_sent = self._clock()
        self._measuring = False
        self._last_number = 0
        self._timed = 0  # the number of the chunk whose acknowledgement ends the round; 0: none was sent
        self._full = False
        self._begin_start_up()

    def sent(self, number: int) -> None:
        """The chunk with this number is sent now."""
        now = self._clock()
        if now - self._last_sent > _IDLE:
            self._begin_start_up()
        self._last_sent, self._last_number = now, number
        if not self._timed:
            self._full = False
            self._begin_round()

    def full(self) -> None:
        """More could be sent, but for the window. The round begins anew, with as much in the path as the window allows,
        unless it measures the delay."""
        known = self._delay < float("inf") and not self._measuring
        if not self._full and known and self._last_number:
            self._begin_round()
        self._full = True

    def acknowledged(self, number: int, size: int) -> None:
        """The peer has every chunk up to this number, which are so many bytes more than before."""
        self._acknowledged += size
        if self._timed and number >= self._timed:
            self._timed = 0
            self._end_round(max(self._clock() - self._since, 1e-6), self._acknowledged - self._before)

    def _begin_round(self) -> None:
        self._timed, self._since, self._before = self._last_number, self._last_sent, self._acknowledged

    def _begin_start_up(self) -> None:
        self._size = self._start
        self._best = 0.0  # bytes per second
        self._flat = 0

    def _end_round(self, seconds: float, size: int) -> None:
        measured, self._measuring = self._measuring, False
        self._measure_delay(seconds, alone=measured or size <= self._least)
        if not self._full or measured:
            return  # the path could have carried more
        rate = size / seconds
        waiting = max(_WAITING, _WAITING_PART * self._delay)
        if rate > _GROWTH * self._best:
            self._flat = 0
        else:
            self._flat += _FLAT_ROUNDS if seconds > self._delay + 2 * waiting else 1
        self._best = max(self._best, rate)
        enough = self._delay + waiting
        if self._flat < _FLAT_ROUNDS:
            wanted = self._best * (_START_UP * self._delay + waiting)
        else:
            wanted = self._size * max(_SHRINK, min(2.0, enough / seconds))
        self._size = max(self._least, min(self._most, int(wanted)))

    def _measure_delay(self, seconds: float, alone: bool) -> None:
        """Keep the shortest round of the last one or two periods. Each ends with a round that is `alone`: with little
        else in the path."""
        if self._clock() - self._newer_since > _FORGET:
            self._measuring = not alone
            if alone:
                self._delay, self._newer_delay = self._newer_delay, float("inf")
                self._newer_since = self._clock()
        self._newer_delay = min(self._newer_delay, seconds)
        self._delay = min(self._delay, seconds)
