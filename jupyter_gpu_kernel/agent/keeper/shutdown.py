"""The last moments of a keeper whose kernel has ended: what it said goes to the hub, what it left ends."""

from __future__ import annotations

import time
from typing import Optional

from ..exit.cleanup import Cleanup
from ..loop import Loop, Timer
from .idle import IdleTimer
from .server import KeeperServer

FAREWELL = 3.0
"""Seconds a hub has to take the last words."""
LOOK = 0.02
LOOK_FOR_SOMEBODY = 1.0


class Shutdown:
    """`begin()`, and the loop stops when nothing is left to do."""

    def __init__(self, loop: Loop, server: KeeperServer, idle_timer: IdleTimer, cleanup: Cleanup) -> None:
        self._loop = loop
        self._door = server
        self._clock = idle_timer
        self._remains = cleanup
        self._timer: Optional[Timer] = None
        self._asked = False

    def begin(self, asked: bool) -> None:
        """`asked`: for the end, by somebody who needs no last words.

        If it ended by itself while nobody was there, they wait much longer: the front end may only be out of reach.
        """
        self.stay()
        self._asked = asked
        if not asked and not self._door.attached and self._clock.waits_for_somebody():
            self._timer = self._loop.later(LOOK_FOR_SOMEBODY, lambda: self.begin(asked))
        else:
            self._wait(self._door.flow.owes, time.monotonic() + FAREWELL)

    def stay(self) -> None:
        """The kernel is started anew after all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, owed: int, deadline: float) -> None:
        owes = self._door.flow.owes
        if owes < owed and not self._asked:  # a hub takes what a crashed kernel said
            owed, deadline = owes, time.monotonic() + FAREWELL
        listens = self._door.attached or not self._asked
        if ((listens and owes) or self._remains.alive) and time.monotonic() <= deadline:
            self._timer = self._loop.later(LOOK, lambda: self._wait(owed, deadline))
        else:
            self._loop.stop()
