"""The messages of a page's last cell, and which of them the page has confirmed. This module knows no socket."""

from __future__ import annotations

from typing import Any

PageMessage = tuple[str, list[bytes]]
"""A message for a page: the channel, and the parts as they came from the kernel's socket."""
_MOST_KEPT = 16 * 1024 * 1024
"""Bytes of a running cell that are kept for the next page. Of more, that page gets only what is not confirmed."""


class CellDelivery:
    """The last cell of a page. `request` is the header of its execute_request, {} while there is no cell; `session` is
    the session of the kernel's messages."""

    def __init__(self) -> None:
        self.request: dict[str, Any] = {}
        self.session = ""
        self.sent_cells: dict[str, PageMessage | None] = {}
        """The ids of cells that the page sent and that have not begun, each with its reply if that came first."""
        self.page = ""
        """The id of the page."""
        self._messages: list[PageMessage] = []
        """The oldest first. All of the cell, until they are too large, or the page has confirmed the last one."""
        self._confirmed = self._size = 0  # of the messages; the size counts those that were confirmed
        self._reply: PageMessage | None = None
        self._is_idle = self._is_complete = False

    @property
    def unconfirmed(self) -> list[PageMessage]:
        """The messages that the page has not confirmed, the oldest first."""
        return self._messages[self._confirmed :]

    @property
    def is_finished(self) -> bool:
        """Whether the page has received the cell's last message, or there is no cell."""
        return not self.request or (self._is_complete and not self.unconfirmed)

    def begin(self, request: dict[str, Any], session: str, clear: PageMessage) -> list[PageMessage]:
        """A cell that the page sent is executed from now on. Return what is left of the cell before it. `clear`: what
        makes another page forget the cell's output."""
        rest = [*self.unconfirmed, *filter(None, [self._reply])]
        self._messages, self._confirmed, self._size = [clear], 1, 0
        self.request, self.session = request, session
        self._reply = self.sent_cells.pop(request["msg_id"], None)
        self._is_idle = self._is_complete = False
        return rest

    def confirm(self, count: int) -> None:
        """The page has received so many messages, the first of those that were not confirmed."""
        self._size += sum(len(part) for _, parts in self.unconfirmed[:count] for part in parts)
        self._confirmed += count
        if self._size > _MOST_KEPT or self.is_finished:
            del self._messages[: self._confirmed]
            self._confirmed = 0

    def continue_at(self, page: str) -> None:
        """This page follows. Another one than before gets the whole cell again: what the page before it had received
        may not be saved."""
        if page != self.page:
            self.page, self._confirmed = page, 0

    def add(self, message: PageMessage, is_idle: bool) -> None:
        """Add a message of the cell. The reply waits for the idle status, as a page takes it for the end of output."""
        self._is_idle = self._is_idle or is_idle
        if message[0] == "shell":
            self._reply = message
        else:
            self._messages.append(message)
        if self._is_idle and self._reply is not None:
            self._messages.append(self._reply)
            self._reply, self._is_complete = None, True
