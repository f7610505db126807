"""Displays that a cell shows for a while, such as why the cell waits, and that notebooks are not to keep.

The keeper removes its displays, but not from the notebooks of front ends that have left before. This module knows
neither link nor sockets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....wire.kernel_messages.compose import PASSING, is_user_cell, make
from ....wire.messages import Channel, Message, MessageError
from ....wire.runtime import Runtime

_MAX_SHOWN = 100
"""Displays that are remembered, so that a kernel cannot fill our memory."""
_TAIL = 200
"""Bytes at the end of a display that contain its id, as keepers write it."""
_ID = re.compile(f'"({PASSING}[^"]*)"'.encode())
_EMPTY = b'"text/plain": ""'


class _ShownDisplay(NamedTuple):
    """A display that front ends show. `cell`: the msg_id of the request; `header`: the header of that request;
    `of_keeper`: whether the keeper has sent the display, and not the hub."""

    cell: str
    header: bytes
    of_keeper: bool


class TransientDisplays:
    """All transient displays that front ends show. `clear` removes those of the keeper before the front ends
    leave."""

    def __init__(self, runtime: Runtime, send: Callable[[Message], None]) -> None:
        self._runtime = runtime
        self._send = send
        self._shown: dict[str, _ShownDisplay] = {}  # by display id
        self._inherited: list[str] = []

    @property
    def ids(self) -> list[str]:
        """The ids of the displays that are shown."""
        return list(self._shown)

    def send(self, message: Message) -> None:
        """Send a message that the hub made."""
        self.observe(message, of_keeper=False)
        self._send(message)

    def observe(self, message: Message, of_keeper: bool = True) -> None:
        """Take note of a message to front ends. `of_keeper`: whether the keeper has sent the message."""
        if message.channel is not Channel.IOPUB:
            return
        header, content = message.parts[0], message.parts[3]
        try:
            found = _ID.search(content[-_TAIL:]) if b'display_data"' in header else None
            if found is not None:
                self._note(
                    found[1].decode(), _ShownDisplay(message.parent_id, message.parts[1], of_keeper), content
                )
            elif self._shown and (b'"clear_output"' in header or b'"idle"' in content[:_TAIL]):
                ended = message.parent_id
                self._shown = {name: one for name, one in self._shown.items() if one.cell != ended}
        except MessageError:
            pass  # front ends cannot read it either

    def _note(self, display_id: str, shown: _ShownDisplay, content: bytes) -> None:
        self._shown.pop(display_id, None)
        if _EMPTY not in content:
            self._shown[display_id] = shown
        if len(self._shown) > _MAX_SHOWN:
            del self._shown[next(iter(self._shown))]

    def clear(self) -> None:
        """Remove the displays of the keeper from the notebooks."""
        for header in {one.cell: one.header for one in self._shown.values() if one.of_keeper}.values():
            self.send(Message(Channel.IOPUB, 0, make(self._runtime, "clear_output", {"wait": False}, header)))

    def inherit(self, ids: Sequence[str]) -> None:
        """The notebook may still show these displays, from the session before. VS Code does not receive messages for
        that session any more."""
        self._inherited = list(ids)

    def cell_sent(self, cell: Message) -> None:
        """A front end has sent a request. If the request is a cell of the user, make the inherited displays empty by
        output of this cell: VS Code finds displays by their ids."""
        if not self._inherited or not is_user_cell(cell):
            return
        ids, self._inherited = self._inherited, []
        for one in ids:
            content = {"data": {"text/plain": ""}, "metadata": {}, "transient": {"display_id": one}}
            parts = make(self._runtime, "update_display_data", content, cell.parts[0])
            self.send(Message(Channel.IOPUB, 0, parts))
