"""The flow of messages to the hub: directly to the endpoint while the hub reads, else through the backlog.

A hub that attaches again is told where the replay of the backlog begins and ends, because jupyter_server must get it at
a limited rate. This module knows neither sockets nor kernels.
"""

from __future__ import annotations

from typing import Iterator

from ....wire.endpoint import Endpoint, State
from ....wire.messages import Lane, Message, keeper_message
from ....wire.queues import WINDOW
from .backlog import Backlog

AHEAD = 2 * WINDOW
"""Bytes passed to the endpoint: enough to keep any link busy, little to hold in memory."""


class Flow:
    """`send` at any time, `feed` before the endpoint is asked for frames, `opened` after a HELLO."""

    def __init__(self, endpoint: Endpoint, backlog: Backlog) -> None:
        self._endpoint = endpoint
        self._backlog = backlog
        self._replay = False

    @property
    def unacknowledged(self) -> int:
        """The approximate number of bytes that the hub has not acknowledged; 0 if it has everything."""
        return self._endpoint.outbox.size + (self._backlog.size or bool(self._backlog))

    @property
    def _flows(self) -> bool:
        return self._endpoint.state is State.OPEN and self._endpoint.outbox.size < AHEAD

    def send(self, lane: Lane, message: Message) -> None:
        """Queue a message. In the ORDERED lane it waits behind the backlog."""
        if lane is Lane.ORDERED and (self._backlog or not self._flows):
            self._backlog.put(message)
        else:
            self._endpoint.send(lane, message.encode())

    def opened(self) -> None:
        """A hub has attached, which may have missed messages."""
        self._replay = True
        if self._backlog:
            self._mark("begin")
        self.feed()

    def feed(self) -> None:
        """Pass the backlog on as fast as the hub takes it."""
        while self._flows:
            taken = self._backlog.take()
            for data in taken:
                self._endpoint.send(Lane.ORDERED, data)
            if not taken:
                break
        if self._replay and not self._backlog:
            self._replay = False
            self._mark("end")

    def withdraw(self) -> Iterator[bytes]:
        """Remove and yield every message that was not acknowledged: there may be more than memory should hold."""
        yield from self._endpoint.withdraw()
        while self._backlog:
            yield from self._backlog.take()

    def _mark(self, state: str) -> None:
        self._endpoint.send(Lane.ORDERED, keeper_message(event="replay", state=state).encode())
