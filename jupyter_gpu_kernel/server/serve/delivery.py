"""Which messages of a page's last cell the page has not confirmed. This module knows no socket."""

from __future__ import annotations

from collections import deque
from typing import Any

PageMessage = tuple[str, list[bytes]]
"""A message for a page: the channel, and the parts as they came from the kernel's socket."""


class CellDelivery:
    """The last cell of a page. `request` is the header of its execute_request, {} while there is no cell; `session` is
    the session of the kernel's messages."""

    def __init__(self) -> None:
        self.request: dict[str, Any] = {}
        self.session = ""
        self.sent_cells: dict[str, PageMessage | None] = {}
        """The ids of cells that the page sent and that have not begun, each with its reply if that came first."""
        self.unconfirmed = deque[PageMessage]()
        """The messages that the page has not confirmed, the oldest first."""
        self._reply: PageMessage | None = None
        self._is_idle = self._is_complete = False

    @property
    def is_finished(self) -> bool:
        """Whether the page has received the cell's last message, or there is no cell."""
        return not self.request or (self._is_complete and not self.unconfirmed)

    def begin(self, request: dict[str, Any], session: str) -> list[PageMessage]:
        """A cell that the page sent is executed from now on. Return what is left of the cell before it."""
        rest = [*self.unconfirmed, *filter(None, [self._reply])]
        self.unconfirmed.clear()
        self.request, self.session = request, session
        self._reply = self.sent_cells.pop(request["msg_id"], None)
        self._is_idle = self._is_complete = False
        return rest

    def add(self, message: PageMessage, is_idle: bool) -> None:
        """Add a message of the cell. The reply waits for the idle status, as a page takes it for the end of output."""
        self._is_idle = self._is_idle or is_idle
        if message[0] == "shell":
            self._reply = message
        else:
            self.unconfirmed.append(message)
        if self._is_idle and self._reply is not None:
            self.unconfirmed.append(self._reply)
            self._reply, self._is_complete = None, True
