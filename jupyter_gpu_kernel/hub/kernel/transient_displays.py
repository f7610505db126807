"""Displays of a kernel that tell of a moment: a front end that leaves must not save them with its notebook.

Such as what a cell waits for. The kernel's keeper removes them when the moment is over, but a front end that has left
does not hear of that. This file knows neither link nor sockets.
"""

from __future__ import annotations

from collections.abc import Callable

from ...wire.compose import PASSING, make
from ...wire.messages import Channel, Message, MessageError

_MOST = 100
"""Cells: what a kernel says must not fill our memory."""
_TAIL = 200
"""Bytes at the end of a display in which its id stands, as keepers write it."""
_MARK = f'"{PASSING}'.encode()


class TransientDisplays:
    """`saw` every message of the kernel; `withdraw` what is shown, in time before the front ends leave."""

    def __init__(self, say: Callable[[Message], None]) -> None:
        self._say = say
        self._cells: dict[str, bytes] = {}  # msg_id and header of the cells that show something

    def saw(self, message: Message) -> None:
        """A message of the kernel on its way to a front end."""
        if message.channel is not Channel.IOPUB:
            return
        header = message.parts[0]
        try:
            if b'"display_data"' in header and _MARK in message.parts[3][-_TAIL:]:
                self._cells[str(message.parent().get("msg_id"))] = message.parts[1]
                if len(self._cells) > _MOST:
                    self._cells.pop(next(iter(self._cells)))
            elif self._cells and (b'"clear_output"' in header or b'"idle"' in message.parts[3][:_TAIL]):
                self._cells.pop(str(message.parent().get("msg_id")), None)
        except MessageError:
            pass  # a front end does not read it either

    def withdraw(self) -> None:
        """The cells show nothing of it any more."""
        cells, self._cells = self._cells, {}
        for parent in cells.values():
            self._say(Message(Channel.IOPUB, 0, make("clear_output", {"wait": False}, parent)))
