"""What is said on iopub before the clients of a killed hub have subscribed to its successor: it is kept for them.

A client's socket subscribes again when its program next looks at it, which may be long after the hub has the port. This
file knows no sockets.
"""

from __future__ import annotations

import time

from ...wire.messages import Message
from .unread import LIMIT

SUBSCRIBE_WITHIN = 15.0
"""Seconds in which a client that is alive should have subscribed again: until then others wait for it."""


class EarlyOutput:
    """`keeps(message)` until `take()`, in order, up to a limit; nothing where no clients are awaited."""

    def __init__(self, awaited: bool) -> None:
        self._kept: list[Message] | None = [] if awaited else None
        self._until = time.monotonic() + SUBSCRIBE_WITHIN
        self._size = 0

    @property
    def room(self) -> bool:
        """Whether more may come."""
        return self._size < LIMIT or self._is_late

    @property
    def hopeless(self) -> bool:
        """Whether there is too much for a client that has not come in time."""
        return self._size >= LIMIT and self._is_late

    def keeps(self, message: Message) -> bool:
        """Whether this message waits here."""
        if self._kept is None:
            return False
        self._kept.append(message)
        self._size += sum(map(len, message.parts))
        return True

    def take(self) -> list[Message]:
        """All that waits; from now on nothing does."""
        kept, self._kept, self._size = self._kept or [], None, 0
        return kept

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self._until
