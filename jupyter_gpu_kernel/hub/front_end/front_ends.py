"""The front ends of one kernel. Each front end has its own edge.

This module knows neither link nor keeper, nor which front end owns the kernel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from ...wire.messages import Channel, Message
from ...wire.runtime import Runtime
from .delivered import Delivered
from .edge import Edge
from .requests import FrontEndFacts
from .sockets import Bind, Sockets

STALL_TIMEOUT = 10.0
"""Seconds without progress after which a front end that does not read is disconnected, if somebody waits for that."""
_CLIENTS = 1 << 16
"""Clients of one front end: a client number on the wire is the front end's number times this, plus its client's."""
_NUMBERS = 1 << 16
"""The numbers of front ends are below this: they have 16 bits on the wire. 0 is no number."""


class Listener(Protocol):
    """Gets the events of a front end's kernel: the launcher or provisioner that serves the front end."""

    def send(self, message: dict[str, Any]) -> None: ...


class FrontEndSpec(NamedTuple):
    """What the process that serves a front end says about the front end."""

    connection: dict[str, Any]
    """The content of the front end's connection file."""
    label: str = ""
    """The name that users know."""
    number: int | None = None
    """The front end's number at a hub that was killed."""
    listener: Listener | None = None
    """The process that serves the front end; None while there is none."""
    parent: int = 0
    """The process that started the launcher."""
    rate_limited: bool = True
    """Whether the front end drops messages above a rate, as jupyter_server does."""
    revives: bool = False
    """Whether the user's next cell starts the kernel anew if the kernel has ended."""
    waits_for_page: bool = False
    """Whether the front end leaves messages unread until a page gets them, though it sends requests before."""


class FrontEnd:
    """One front end: its edge, and its `spec`."""

    def __init__(self, number: int, edge: Edge, spec: FrontEndSpec) -> None:
        self.number = number
        self.edge = edge
        self.label = spec.label or "another front end"
        self.spec = spec
        self._absence: asyncio.TimerHandle | None = None

    @property
    def absent(self) -> bool:
        """Whether the front end has left, and may return with its ports."""
        return self._absence is not None

    def leave(self, seconds: float, not_back: Callable[[], None]) -> None:
        """The process that served the front end has gone. Unless the front end returns within so many seconds,
        `not_back()` is called."""
        self.spec = self.spec._replace(listener=None)
        self._absence = asyncio.get_running_loop().call_later(seconds, not_back)

    def end_absence(self) -> None:
        """The front end has returned, or cannot return any more."""
        if self._absence is not None:
            self._absence.cancel()
            self._absence = None

    def send(self, message: Message) -> None:
        """Send a message to its client, or to all clients."""
        self.edge.send(message.replace(client=message.client % _CLIENTS))

    def notify(self, event: dict[str, Any]) -> None:
        """Send an event to the process that serves the front end, if there is one."""
        if self.spec.listener is not None:
            self.spec.listener.send(event)


class FrontEnds:
    """The front ends of one kernel, by number, the oldest first."""

    def __init__(
        self,
        runtime: Runtime,
        on_message: Callable[[FrontEnd, Message], None],
        on_subscribe: Callable[[], None],
        on_complete: Callable[[], None],
        on_change: Callable[[], None],
        delivered: Delivered | None,
        bind: Bind = Sockets,
    ) -> None:
        """`on_message(front, request)`: the request's client number says where the reply has to go. `on_subscribe()`:
        called for each new subscriber. `on_complete()`: called when all front ends that a killed hub had are here, and
        their clients have connected. `on_change()`: called when a front end has come or left, or
        has another process.
        `bind`: binds the sockets of one front end."""
        self._runtime = runtime
        self._on_message = on_message
        self._on_subscribe = on_subscribe
        self._on_complete = on_complete
        self._on_change = on_change
        self._bind = bind
        self._delivered = delivered
        self._front_ends: dict[int, FrontEnd] = {}
        # A number is used again only after all others, as a reply for a front end that has left must not go to another
        # one. Who has left while a killed hub had the kernel is not known, so the first number is random.
        known = delivered.front_ends if delivered is not None else []
        self._next = max([0, *known]) + runtime.random.randrange(1 << (10 if known else 15)) + 1
        self._known = frozenset(known)
        self._kept: list[Message] = []  # for those that a killed hub had and that are not back yet

    def __len__(self) -> int:
        return len(self._front_ends)

    def __iter__(self) -> Iterator[FrontEnd]:
        return iter(list(self._front_ends.values()))

    @property
    def complete(self) -> bool:
        """Whether all front ends that a killed hub had are back."""
        return self._delivered is None or self._front_ends.keys() >= set(self._delivered.front_ends)

    @property
    def facts(self) -> dict[int, FrontEndFacts]:
        """The facts of the front ends, by number."""
        return {one.number: FrontEndFacts(one.label, one.spec.rate_limited, one.spec.revives) for one in self}

    def get(self, number: int) -> FrontEnd | None:
        """Return the front end with this number; None if it has left."""
        return self._front_ends.get(number)

    def add(self, spec: FrontEndSpec) -> FrontEnd:
        """Add a front end. Raise HubError if its ports cannot be bound."""
        number = spec.number
        if number is None or number in self._front_ends:
            number = self._unused_number()
            self._next = number + 1

        def receive(message: Message) -> None:
            self._on_message(front, message.replace(client=number * _CLIENTS + message.client))

        clients = self._delivered.clients(number) if self._delivered is not None else None
        known = spec.number is not None
        edge = Edge(
            self._runtime, spec.connection, receive, self._subscribed, clients, known=known, bind=self._bind
        )
        front = FrontEnd(number, edge, spec)
        self._front_ends[number] = front
        for message in self._kept if known else ():
            if front in self._recipients(message):
                front.send(message)
        self._on_change()
        return front

    def _unused_number(self) -> int:
        numbers = (number % _NUMBERS for number in range(self._next, self._next + _NUMBERS))
        return next(one for one in numbers if one and one not in self._front_ends and one not in self._known)

    def reconnect(self, front: FrontEnd, spec: FrontEndSpec) -> None:
        """Another process serves the front end now."""
        front.spec = spec
        front.end_absence()
        self._on_change()

    def _subscribed(self) -> None:
        self._on_subscribe()
        if self.complete and all(front.edge.is_ready for front in self):
            self._on_complete()

    def remove(self, front: FrontEnd) -> None:
        """Remove a front end that has left."""
        self._front_ends.pop(front.number, None)
        front.end_absence()
        front.edge.close()
        if self._delivered is not None:
            self._delivered.forget_front_end(front.number)
        self._on_change()

    def close(self) -> None:
        """Remove all front ends."""
        for front in self:
            self.remove(front)

    def of(self, listener: object) -> FrontEnd | None:
        """Return the front end that this process serves; None if there is none."""
        return next((front for front in self if front.spec.listener is listener), None)

    def send(self, message: Message, *, keeps: bool = False) -> None:
        """Send a message of the kernel to its client; a message on iopub to all clients. `keeps`: also to front ends
        that a killed hub had, when they are back."""
        self._kept = [*self._kept, message] if keeps else []
        for front in self._recipients(message):
            front.send(message)

    def make_room(self, message: Message) -> bool:
        """Return whether all recipients of this message can receive more.

        One that has received nothing for long is disconnected if others wait for it, or if it still sends requests;
        requests do not count where messages wait for a page.
        """
        full = [front for front in self._recipients(message) if not front.edge.has_room(message)]
        for front in full:
            since = front.edge.stalled_since(message)
            others = len(self._front_ends) > len(full)
            stalled = self._runtime.monotonic() - since > STALL_TIMEOUT
            asks = front.edge.last_request > since and not front.spec.waits_for_page
            if stalled and (others or asks):
                front.edge.disconnect(message)
        return not full

    def _recipients(self, message: Message) -> list[FrontEnd]:
        if message.channel is Channel.KEEPER:
            return []
        if message.channel is Channel.IOPUB:
            return list(self._front_ends.values())
        front = self._front_ends.get(message.client // _CLIENTS)
        return [] if front is None else [front]

    def notify(self, event: dict[str, Any]) -> None:
        """Send an event to the processes that serve the front ends."""
        for front in self:
            front.notify(event)
