"""Which messages of a page's last cell the page has not confirmed. This module knows no socket."""

from __future__ import annotations

from collections import deque
from typing import Any

PageMessage = tuple[str, list[bytes]]
"""A message for a page: the channel, and the parts as they came from the kernel's socket."""


class CellDelivery:
    """The last cell of a page. `request` is the header of its execute_request, {} while there is no cell; `session` is
    the session of the kernel's messages; `asked` has the ids of the last cells that the page sent."""

    def __init__(self) -> None:
        self.request: dict[str, Any] = {}
        self.session = ""
        self.asked = deque[str](maxlen=1000)
        self.unconfirmed = deque[PageMessage]()
        """The messages that the page has not confirmed, the oldest first."""
        self._reply: PageMessage | None = None
        self._is_idle = self._is_complete = False

    @property
    def is_finished(self) -> bool:
        """Whether the page has received the cell's last message, or there is no cell."""
        return not self.request or (self._is_complete and not self.unconfirmed)

    def begin(self, request: dict[str, Any], session: str) -> None:
        """A cell that the page sent is executed from now on."""
        self.unconfirmed.clear()
        self.request, self.session = request, session
        self._reply, self._is_idle, self._is_complete = None, False, False

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
