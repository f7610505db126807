"""A queue of what waits for the user: pages fetch it, show it, and let the user answer or cancel each entry."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

MOST = 100
"""Entries of one queue."""


class PageEntry(Protocol):
    """`shown`: what pages get, with the entry's "id"; `fetched`: is set when a page has got it."""

    @property
    def shown(self) -> dict[str, Any]: ...

    @property
    def fetched(self) -> threading.Event | asyncio.Event: ...


Entry = TypeVar("Entry", bound=PageEntry)


class PageQueue(Generic[Entry]):
    """Entries in the order in which they came. `notify(number of entries)` is called when there are others."""

    def __init__(self, notify: Callable[[int], None]) -> None:
        self._notify = notify
        self._entries: dict[str, Entry] = {}
        self._lock = threading.RLock()

    def open(self) -> list[dict[str, Any]]:
        """Return the entries to a page that shows them."""
        with self._lock:
            entries = list(self._entries.values())
        for one in entries:
            one.fetched.set()
        return [one.shown for one in entries]

    @property
    def _is_full(self) -> bool:
        return len(self._entries) >= MOST

    def _add(self, entry: Entry) -> None:
        with self._lock:
            self._entries[entry.shown["id"]] = entry
            self._notify(len(self._entries))

    def _take(self, number: str) -> Entry:
        """Remove and return an entry. Raises KeyError if it is not there (any more)."""
        with self._lock:
            entry = self._entries.pop(number)
            self._notify(len(self._entries))
        return entry


def notifier(server: Any, event: str, title: str) -> Callable[[int], None]:
    """Return what tells all pages of this server, from any thread, how many entries a queue has, by this event."""
    waiting = {"type": "integer", "title": "Count", "description": "How many there are."}
    server.event_logger.register_event_schema(
        {
            "$id": event,
            "version": "1",
            "title": title,
            "description": "Others than before wait for the user. Pages fetch them.",
            "type": "object",
            "required": ["waiting"],
            "properties": {"waiting": waiting},
        }
    )

    def emit(waiting: int) -> None:
        server.event_logger.emit(schema_id=event, data={"waiting": waiting})

    return lambda waiting: server.io_loop.add_callback(emit, waiting)
