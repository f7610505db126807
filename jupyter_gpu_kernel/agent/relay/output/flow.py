"""What flows to the hub: straight into the connection while somebody reads, else through the backlog.

A hub that comes back is told where what waited begins and ends: jupyter_server must get it at a pace. This
file knows neither sockets nor kernels.
"""

from __future__ import annotations

from typing import Iterator

from ....wire.endpoint import Endpoint, State
from ....wire.messages import Lane, Message, keeper_message
from ....wire.queues import WINDOW
from .backlog import Backlog

AHEAD = 2 * WINDOW
"""Bytes handed to the connection: enough to keep any link busy, little to hold in memory."""


class Flow:
    """`send` at any time, `feed` before the connection is asked for frames, `opened` after a hello."""

    def __init__(self, connection: Endpoint, backlog: Backlog) -> None:
        self._connection = connection
        self._backlog = backlog
        self._replay = False

    @property
    def owes(self) -> int:
        """About how many bytes the hub has not acknowledged; 0: it has everything."""
        return self._connection.outbox.size + (self._backlog.size or bool(self._backlog))

    @property
    def _flows(self) -> bool:
        return self._connection.state is State.OPEN and self._connection.outbox.size < AHEAD

    def send(self, lane: Lane, message: Message) -> None:
        """Queues a message; what is bulk may have to wait its turn."""
        if lane is Lane.ORDERED and (self._backlog or not self._flows):
            self._backlog.put(message)
        else:
            self._connection.send(lane, message.encode())

    def opened(self) -> None:
        """There is a hub, which may have missed something."""
        self._replay = True
        if self._backlog:
            self._mark("begin")
        self.feed()

    def feed(self) -> None:
        """What waited goes on as the hub takes it."""
        while self._flows:
            taken = self._backlog.take()
            for data in taken:
                self._connection.send(Lane.ORDERED, data)
            if not taken:
                break
        if self._replay and not self._backlog:
            self._replay = False
            self._mark("end")

    def withdraw(self) -> Iterator[bytes]:
        """Takes back what was not acknowledged, one by one: it may be more than memory should hold."""
        yield from self._connection.withdraw()
        while self._backlog:
            yield from self._backlog.take()

    def _mark(self, state: str) -> None:
        self._connection.send(Lane.ORDERED, keeper_message(event="replay", state=state).encode())
