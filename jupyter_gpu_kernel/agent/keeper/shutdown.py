"""The end of a keeper whose kernel has ended: the hub fetches the last messages, leftover processes end."""

from __future__ import annotations

from typing import Optional

from ..exit.processes import Cleanup
from ..loop import Loop, Timer
from .idle import IdleTimer
from .server import KeeperServer

FETCH_TIMEOUT = 3.0
"""Seconds that a hub has to fetch the last messages."""
INTERVAL = 0.02
DETACHED_INTERVAL = 1.0


class Shutdown:
    """`begin()`: the loop stops when nothing is left to do."""

    def __init__(self, loop: Loop, server: KeeperServer, idle_timer: IdleTimer, cleanup: Cleanup) -> None:
        self._loop = loop
        self._server = server
        self._idle_timer = idle_timer
        self._cleanup = cleanup
        self._timer: Optional[Timer] = None
        self._asked = False

    def begin(self, asked: bool) -> None:
        """`asked`: the end was requested, so nobody needs the last messages.

        If the kernel ended by itself while no front end was attached, the messages are kept as long as an idle kernel
        would be: the front end may only be out of reach.
        """
        self.cancel()
        self._asked = asked
        if not asked and not self._server.attached and self._idle_timer.keeps_ended_kernel():
            self._timer = self._loop.later(DETACHED_INTERVAL, lambda: self.begin(asked))
        else:
            self._wait(self._server.flow.unacknowledged, self._loop.time() + FETCH_TIMEOUT)

    def cancel(self) -> None:
        """The kernel is started again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, unread: int, deadline: float) -> None:
        now_unread = self._server.flow.unacknowledged
        if now_unread < unread and not self._asked:  # a hub is fetching the messages of a crashed kernel
            unread, deadline = now_unread, self._loop.time() + FETCH_TIMEOUT
        wanted = self._server.attached or not self._asked
        if ((wanted and now_unread) or self._cleanup.alive) and self._loop.time() <= deadline:
            self._timer = self._loop.later(INTERVAL, lambda: self._wait(unread, deadline))
        else:
            self._loop.stop()
