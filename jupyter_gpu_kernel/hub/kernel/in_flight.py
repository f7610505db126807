"""Which cells of a kernel's front ends have no reply yet: asked by a keeper that took a killed one's place.

It knows messages, neither link nor sockets.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ...wire.compose import is_user_cell
from ...wire.messages import Channel, Message, MessageError


class InFlightCells:
    """`asked` sees what goes to the keeper, `answered` what comes from it; `cells` are those between."""

    def __init__(self) -> None:
        self._cells: dict[str, Message] = {}
        self._silent: set[str] = set()  # those that have shown nothing
        self._said: dict[str, str] = {}  # msg_id: the last state of the kernel that front ends have heard

    @property
    def cells(self) -> list[dict[str, Any]]:
        """[{client, parts: their very text, said: "", "busy" or "idle"}], oldest first: as the keeper may have to send
        them to the kernel."""
        return [
            {
                "client": cell.client,
                "parts": [_text(part) for part in cell.parts[:4]],
                "said": self._said.get(msg_id, ""),
            }
            for msg_id, cell in self._cells.items()
        ]

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(len(part) for cell in self._cells.values() for part in cell.parts)

    @property
    def ids(self) -> list[str]:
        """Their msg_ids, oldest first; of very many the newest."""
        return list(self._cells)[-1000:]

    @property
    def running_silently(self) -> Message | None:
        """The oldest one, which runs, if it is a user's and has shown nothing."""
        msg_id, cell = next(iter(self._cells.items()), ("", None))
        return cell if cell is not None and msg_id in self._silent and is_user_cell(cell) else None

    def asked(self, message: Message) -> None:
        """A request goes on its way."""
        if message.channel is not Channel.SHELL or b'"execute_request"' not in message.parts[0]:
            return
        with contextlib.suppress(MessageError):  # the keeper will not answer it either
            msg_id = str(message.header().get("msg_id"))
            self._cells[msg_id] = message.unparsed()
            self._silent.add(msg_id)

    def answered(self, message: Message) -> None:
        """The keeper, or the kernel, says something."""
        if message.channel is Channel.SHELL and b'"execute_reply"' in message.parts[0]:
            msg_id = str(message.parent().get("msg_id"))
            self._cells.pop(msg_id, None)
            self._said.pop(msg_id, None)
            self._silent.discard(msg_id)
        elif self._cells and message.channel is Channel.IOPUB and b'"status"' in message.parts[0]:
            msg_id = str(message.parent().get("msg_id"))
            state = message.content().get("execution_state")
            if msg_id in self._cells and state in ("busy", "idle"):
                self._said[msg_id] = state
        elif self._silent and message.channel is Channel.IOPUB and b'"execute_input"' not in message.parts[0]:
            self._silent.discard(str(message.parent().get("msg_id")))

    def again(self, queued: list[Message]) -> list[Message]:
        """What another kernel is to be asked, in this order: every cell without a reply, and what else is `queued`.
        Words to the keeper are for the one before."""
        queued = [message for message in queued if message.channel is not Channel.KEEPER]
        ids = {_id(message) for message in queued}
        return [cell for msg_id, cell in self._cells.items() if msg_id not in ids] + queued

    def take(self) -> list[Message]:
        """All of them; nobody is asked any more."""
        cells, self._cells, self._said = list(self._cells.values()), {}, {}
        self._silent.clear()
        return cells


def _id(message: Message) -> str:
    try:
        return str(message.header().get("msg_id"))
    except MessageError:
        return ""


def _text(part: bytes) -> str:
    return part.decode("utf-8", "surrogateescape")
