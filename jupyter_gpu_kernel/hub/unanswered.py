"""Which cells of a kernel's front ends have no reply yet: asked by a keeper that took a killed one's place.

It knows messages, neither link nor sockets.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ..wire.messages import Channel, Message, MessageError


class Unanswered:
    """`asked` sees what goes to the keeper, `answered` what comes from it; `cells` are those between."""

    def __init__(self) -> None:
        self._cells: dict[str, Message] = {}

    @property
    def cells(self) -> list[dict[str, Any]]:
        """[{client, parts: their very text}], oldest first: as the keeper may have to send them to the kernel."""
        return [
            {"client": cell.client, "parts": [_text(part) for part in cell.parts[:4]]}
            for cell in self._cells.values()
        ]

    def asked(self, message: Message) -> None:
        """A request goes on its way."""
        if message.channel is not Channel.SHELL or b'"execute_request"' not in message.parts[0]:
            return
        with contextlib.suppress(MessageError):  # the keeper will not answer it either
            self._cells[str(message.header().get("msg_id"))] = message

    def answered(self, message: Message) -> None:
        """The keeper, or the kernel, says something."""
        if message.channel is Channel.SHELL and b'"execute_reply"' in message.parts[0]:
            self._cells.pop(str(message.parent().get("msg_id")), None)

    def take(self) -> list[Message]:
        """All of them; nobody is asked any more."""
        cells, self._cells = list(self._cells.values()), {}
        return cells


def _text(part: bytes) -> str:
    return part.decode("utf-8", "surrogateescape")
