"""The cells that a keeper has received, and those that a hub lists because it has no reply to them.

When a hub is killed, it may have cells that it has not sent yet. Its successor lists all cells that front ends wait
for, and the keeper handles those that it never received.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

from ...wire.fields import FieldError, items, number, text, texts
from ...wire.messages import MAX_CLIENTS, Channel, Message
from ...wire.queues import MAX_MESSAGE

MAX_CELLS = 100_000
"""Cells in one command."""
UNKNOWN_STATE = "?"
"""The state of a cell from a hub that does not know it."""
_REMEMBERED = 1000
"""The msg_ids of so many cells are kept, the newest ones."""


class UnansweredCell(NamedTuple):
    """An execute_request that the hub has no reply for. `state`: the last status that front ends have been sent."""

    request: Message
    state: str

    @classmethod
    def read(cls, cell: Any) -> UnansweredCell:
        """Read one of the `cells` of the hub's command. Raises FieldError or MessageError if it is malformed."""
        if not isinstance(cell, dict):
            raise FieldError("a cell that is no object")
        parts = texts(cell, "parts", 4, least=4, length=MAX_MESSAGE)
        encoded = tuple(part.encode("utf-8", "surrogateescape") for part in parts)
        request = Message(Channel.SHELL, number(cell, "client", most=MAX_CLIENTS), encoded)
        text(request.header(), "msg_id")
        request.content()
        return cls(request.unparsed(), text(cell, "state", UNKNOWN_STATE))


def read_unanswered(command: Dict[str, Any]) -> List[UnansweredCell]:
    """Return the cells of the command. Raises FieldError or MessageError if it is malformed."""
    return [UnansweredCell.read(cell) for cell in items(command, "cells", MAX_CELLS)]


class ReceivedCells:
    """The newest cells that the keeper has received."""

    def __init__(self) -> None:
        self._ids: Dict[str, None] = {}

    def add(self, request: Message) -> None:
        """Remember a cell that the hub has sent; ignore other requests."""
        if request.channel is Channel.SHELL and request.msg_type == "execute_request":
            self._ids[request.msg_id] = None
            if len(self._ids) > _REMEMBERED:
                del self._ids[next(iter(self._ids))]

    def missing(self, cells: Sequence[UnansweredCell], pending: Iterable[str] = ()) -> List[Message]:
        """Return those of the listed cells that were not received. `pending`: the msg_ids of those without a reply.

        The hub sends and lists them in one order, so every cell that is listed before a received one was received, too.
        """
        ids = {*self._ids, *pending}
        known = [at for at, cell in enumerate(cells) if cell.request.msg_id in ids]
        return [cell.request for cell in cells[known[-1] + 1 if known else 0 :]]
