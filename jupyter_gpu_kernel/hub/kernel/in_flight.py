"""The cells that were sent to the keeper and have no reply yet. If the keeper is killed, its successor asks for them.

This module knows messages, neither link nor sockets.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ...wire.compose import is_user_cell
from ...wire.messages import Channel, Message, MessageError
from ..requests import id_of

_MAX_IDS = 1000


class InFlightCells:
    """`sent` gets every request to the keeper, `received` every message of it."""

    def __init__(self) -> None:
        self._cells: dict[str, Message] = {}
        self._silent: set[str] = set()  # msg_ids of those without output
        self._states: dict[str, str] = {}  # by msg_id: the last execution state that front ends have received

    def describe(self) -> list[dict[str, Any]]:
        """Return the cells, oldest first, as a keeper's successor needs them: [{"client", "parts", "said"}].

        `parts` may have to go to the kernel unchanged. `said` is the last state that front ends have received: "", busy
        or idle.
        """
        return [
            {
                "client": cell.client,
                "parts": [_text(part) for part in cell.parts[:4]],
                "said": self._states.get(msg_id, ""),
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
        return list(self._cells)[-_MAX_IDS:]

    @property
    def silent_running_cell(self) -> Message | None:
        """The oldest one, which is running, if it is a user's cell and has no output yet."""
        msg_id, cell = next(iter(self._cells.items()), ("", None))
        return cell if cell is not None and msg_id in self._silent and is_user_cell(cell) else None

    def sent(self, request: Message) -> None:
        """Take note of a request to the keeper."""
        if request.channel is not Channel.SHELL or b'"execute_request"' not in request.parts[0]:
            return
        with contextlib.suppress(MessageError):  # the keeper will not answer it either
            msg_id = request.msg_id
            self._cells[msg_id] = request.unparsed()
            self._silent.add(msg_id)

    def received(self, message: Message) -> None:
        """Take note of a message of the keeper or the kernel."""
        if message.channel is Channel.SHELL and b'"execute_reply"' in message.parts[0]:
            msg_id = message.parent_id
            self._cells.pop(msg_id, None)
            self._states.pop(msg_id, None)
            self._silent.discard(msg_id)
        elif self._cells and message.channel is Channel.IOPUB and b'"status"' in message.parts[0]:
            msg_id = message.parent_id
            state = message.content().get("execution_state")
            if msg_id in self._cells and state in ("busy", "idle"):
                self._states[msg_id] = state
        elif self._silent and message.channel is Channel.IOPUB and b'"execute_input"' not in message.parts[0]:
            self._silent.discard(message.parent_id)

    def with_queued(self, queued: list[Message]) -> list[Message]:
        """Return the requests to send to another kernel: each cell without a reply, and what else is `queued`, in
        order. Commands to the keeper are left out."""
        queued = [message for message in queued if message.channel is not Channel.KEEPER]
        ids = {id_of(message) for message in queued}
        return [cell for msg_id, cell in self._cells.items() if msg_id not in ids] + queued

    def clear(self) -> list[Message]:
        """Forget all of them, and return them."""
        cells, self._cells, self._states = list(self._cells.values()), {}, {}
        self._silent.clear()
        return cells


def _text(part: bytes) -> str:
    return part.decode("utf-8", "surrogateescape")
