"""A queue of what waits for the user: pages fetch it, show it, and let the user answer or cancel each entry."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..api import RequestRefused

MOST = 100
"""Entries of one queue."""


@dataclass(frozen=True, eq=False)
class PageEntry:
    """One entry. A thread, or by `asyncio.wrap_future` an event loop, waits for its two futures.

    shown: What pages get, with the entry's "id". fetched: Has a result when a page has got the entry. reply: Has what
    the user did. Both are cancelled when the entry is withdrawn.
    """

    shown: dict[str, Any]
    asker: Any = None
    """Who asks, for the queue of questions."""
    fetched: Future[None] = field(default_factory=Future)
    reply: Future[Any] = field(default_factory=Future, repr=False)


class PageQueue:
    """Entries in the order in which they came. `notify(number of entries)` is called when there are others."""

    event: ClassVar[str]
    """The event that tells pages how many entries there are."""
    title: ClassVar[str]
    """The title of this event, for people."""
    gone: ClassVar[str]
    """What a page is told that answers or cancels an entry which is not in the queue (any more)."""

    def __init__(self, notify: Callable[[int], None]) -> None:
        self._notify = notify
        self._entries: dict[str, PageEntry] = {}
        self._lock = threading.RLock()

    def open(self) -> list[dict[str, Any]]:
        """Return the entries to a page that shows them."""
        with self._lock:
            entries = list(self._entries.values())
            for one in entries:
                if not one.fetched.done():
                    one.fetched.set_result(None)
        return [one.shown for one in entries]

    @property
    def _is_full(self) -> bool:
        return len(self._entries) >= MOST

    def _add(self, entry: PageEntry) -> None:
        with self._lock:
            self._entries[entry.shown["id"]] = entry
            self._notify(len(self._entries))

    def _entry(self, number: str) -> PageEntry:
        """Return an entry. Raises RequestRefused if there is no such entry (any more)."""
        try:
            return self._entries[number]
        except KeyError:
            raise RequestRefused(404, self.gone) from None

    def _take(self, number: str) -> PageEntry:
        """Remove and return an entry. Raises RequestRefused as `_entry` does."""
        with self._lock:
            entry = self._entry(number)
            del self._entries[number]
            self._notify(len(self._entries))
        return entry

    def _settle(self, number: str, reply: object) -> None:
        """Remove an entry, and give the entry its reply. Raises RequestRefused as `_entry` does."""
        with self._lock:
            self._take(number).reply.set_result(reply)

    def _withdraw(self, entry: PageEntry) -> None:
        """Nobody waits for the entry any more, which may have left the queue before."""
        with self._lock:
            if entry.shown["id"] in self._entries:
                self._take(entry.shown["id"])
            entry.fetched.cancel()
            entry.reply.cancel()


def notifier(server: Any, queue: type[PageQueue]) -> Callable[[int], None]:
    """Return what tells all pages of this server, from any thread, how many entries the queue of this kind has."""
    waiting = {"type": "integer", "title": "Count", "description": "How many there are."}
    server.event_logger.register_event_schema(
        {
            "$id": queue.event,
            "version": "1",
            "title": queue.title,
            "description": "Others than before wait for the user. Pages fetch them.",
            "type": "object",
            "required": ["waiting"],
            "properties": {"waiting": waiting},
        }
    )

    def emit(waiting: int) -> None:
        server.event_logger.emit(schema_id=queue.event, data={"waiting": waiting})

    return lambda waiting: server.io_loop.add_callback(emit, waiting)
