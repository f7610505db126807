"""The reader of the log that sends messages to the hub: directly while the hub reads, else from those that wait.

A hub that attaches again gets marks at the beginning and the end of its replay, because jupyter_server must get the
replay at a limited rate. This module knows neither sockets nor kernels.
"""

from __future__ import annotations

from ...wire.messages import Lane, Message, keeper_message
from ...wire.stream.endpoint import Endpoint, EndpointState
from .log import Log

AHEAD = 2 * 1024 * 1024
"""Bytes passed to the endpoint besides its window: enough to keep any link busy, little to hold in memory."""


class HubReader:
    """`send` at any time, `feed` before the endpoint is asked for frames, `opened` after a HELLO."""

    def __init__(self, endpoint: Endpoint, log: Log) -> None:
        """Continue where the reader of a killed keeper was."""
        self._endpoint = endpoint
        self._log = log
        self._replay = False
        self._restore()

    @property
    def unacknowledged(self) -> int:
        """The approximate number of bytes that the hub has not acknowledged; 0 if it has everything."""
        return self._endpoint.outbox.size + (self._log.state.queue.size or bool(self._log.state.queue))

    @property
    def _attached(self) -> bool:
        return self._endpoint.state is EndpointState.OPEN

    @property
    def _has_room(self) -> bool:
        return self._endpoint.outbox.size < self._endpoint.outbox.window + AHEAD

    def send(self, lane: Lane, message: Message) -> None:
        """Send a message. In the ORDERED lane it waits behind others; in other lanes, if the hub has left and the
        endpoint holds much."""
        if lane is Lane.ORDERED:
            waits = bool(self._log.state.queue) or not (self._attached and self._has_room)
        else:
            waits = not self._attached and not self._has_room
        if waits:
            self._log.wait(message)
        else:
            self._endpoint.send(lane, self._log.send(lane, message))

    def opened(self) -> None:
        """A hub has attached, which may have missed messages."""
        self._replay = True
        if self._log.state.queue:
            self._mark("begin")
        self.feed()

    def feed(self) -> None:
        """Pass on the messages that wait as fast as the hub takes them."""
        while self._attached and self._has_room:
            taken = self._log.take()
            for data in taken:
                self._endpoint.send(Lane.ORDERED, data)
            if not taken:
                break
        if self._replay and not self._log.state.queue:
            self._replay = False
            self._mark("end")

    def acknowledged(self) -> None:
        """The hub may have acknowledged messages."""
        numbers = self._endpoint.outbox.serials
        if numbers != self._log.state.serials:
            self._log.add("acknowledge", list(numbers))

    def leave(self) -> None:
        """The front end has left, and another one attaches: what the hub has not acknowledged is for nobody. There must
        be no stream."""
        self._log.leave()
        self._endpoint.withdraw()
        self._restore()

    def _restore(self) -> None:
        state = self._log.state
        for lane in Lane:
            self._endpoint.outbox.restore(lane, state.serials[lane], state.lanes[lane])

    def _mark(self, state: str) -> None:
        message = keeper_message(event="replay", state=state)
        self._endpoint.send(Lane.ORDERED, self._log.send(Lane.ORDERED, message))
