"""The front ends on one kernel: each has its own edge, and one of them owns the kernel.

The owner is who ran a cell last, or came first: it alone interrupts, restarts and ends the kernel. The others see
what it prints. This file knows neither link nor keeper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ...wire.messages import Channel, Message
from .delivered import Delivered
from .edge import Edge

PATIENCE = 10.0
"""Seconds without progress after which a front end that does not read is hung up on, if somebody waits for that."""
_CLIENTS = 1 << 16
"""Clients of one front end: a number on the wire says which front end, and which of its clients."""


class Listener(Protocol):
    """Who is told what happens to the kernel: a face."""

    def send(self, message: dict[str, Any]) -> None: ...


class FrontEnd:
    """One front end's edge, the face that asked for it, and what users call it.

    `paced`: it has a rate limit. `revives`: for it a kernel that ended starts anew with its user's next cell.
    """

    def __init__(self, index: int, edge: Edge, label: str) -> None:
        self.index = index
        self.edge = edge
        self.label = label or "another front end"
        self.listener: Listener | None = None
        self.paced, self.revives = True, False
        self.parent = 0  # the process that started its launcher

    def tell(self, event: dict[str, Any]) -> None:
        """An event for its face, if that is still there."""
        if self.listener is not None:
            self.listener.send(event)


class FrontEnds:
    """`add` one with its connection; `send` what the kernel says; `owner` is one of them, None if there is none."""

    def __init__(
        self,
        on_message: Callable[[FrontEnd, Message], None],
        on_subscribe: Callable[[], None],
        on_complete: Callable[[], None],
        delivered: Delivered | None,
    ) -> None:
        """`on_message` gets messages whose client number says where the answer has to go. `on_complete()`: all that a
        killed hub had are here."""
        self.owner: FrontEnd | None = None
        self._on_message = on_message
        self._on_subscribe = on_subscribe
        self._on_complete = on_complete
        self._delivered = delivered
        self._front_ends: dict[int, FrontEnd] = {}
        self._missing = set(delivered.front_ends) if delivered is not None else set()
        # Never a number twice: an answer for one that has left must not go to another.
        self._next = max(self._missing, default=-1) + 1

    def __len__(self) -> int:
        return len(self._front_ends)

    def __iter__(self) -> Iterator[FrontEnd]:
        return iter(list(self._front_ends.values()))

    @property
    def owners_label(self) -> str:
        """What users call the one that owns the kernel."""
        return self.owner.label if self.owner is not None else "nobody"

    def add(self, connection: dict[str, Any], label: str, index: int | None = None) -> FrontEnd:
        """One more; HubError if its ports cannot be had. `index`: the one it had with a hub before."""
        number = self._next if index is None or index in self._front_ends else index

        def heard(message: Message) -> None:
            self._on_message(front, message.replace(client=number * _CLIENTS + message.client))

        clients = self._delivered.clients(number) if self._delivered is not None else None
        edge = Edge(connection, heard, self._on_subscribe, clients, known=index is not None)
        front = FrontEnd(number, edge, label)
        self._front_ends[number] = front
        self._next = max(self._next, number + 1)
        self.owner = self.owner or front
        self._missing.discard(number)
        if not self._missing:
            self._on_complete()
        return front

    def remove(self, front: FrontEnd) -> None:
        """It has left; the oldest of the others owns the kernel, if it did."""
        self._front_ends.pop(front.index, None)
        front.edge.close()
        if self.owner is front:
            self.owner = next(iter(self._front_ends.values()), None)
        if self._delivered is not None:
            self._delivered.left(front.index)

    def of(self, listener: object) -> FrontEnd | None:
        """The one that this face asked for."""
        return next((front for front in self if front.listener is listener), None)

    def send(self, message: Message) -> None:
        """To the client it is for; on iopub to all."""
        if message.channel is Channel.IOPUB:
            for front in self._front_ends.values():
                front.edge.send(message)
            return
        index, client = divmod(message.client, _CLIENTS)
        if index in self._front_ends:
            self._front_ends[index].edge.send(message.replace(client=client))

    def room(self, message: Message) -> bool:
        """Whether all whom it is for take more. One that has taken nothing for long does not hold up others, nor itself
        if it is alive and asks for more."""
        full = [front for front in self._for(message) if not front.edge.has_room(message)]
        for front in full:
            since = front.edge.stalled_since(message)
            others = len(self._front_ends) > len(full)
            if time.monotonic() - since > PATIENCE and (others or front.edge.last_request > since):
                front.edge.disconnect(message)
        return not full

    def _for(self, message: Message) -> list[FrontEnd]:
        if message.channel is Channel.KEEPER:
            return []
        if message.channel is Channel.IOPUB:
            return list(self._front_ends.values())
        front = self._front_ends.get(message.client // _CLIENTS)
        return [] if front is None else [front]

    def tell(self, event: dict[str, Any]) -> None:
        """To every face."""
        for front in self:
            front.tell(event)

    def close(self) -> None:
        """All ports are free; faces hear nothing more."""
        for front in self:
            self.remove(front)
