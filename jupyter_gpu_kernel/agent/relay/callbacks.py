"""What a relay calls."""

from __future__ import annotations

from typing import Callable, NamedTuple

from ...wire.messages import Message
from .code_gate import Pin

OnMessage = Callable[[Message], None]


class RelayCallbacks(NamedTuple):
    """What the keeper does.

    pin: Pins the code for `%gpu code` in the first cell.
    on_user_cell: Called when a user runs a cell.
    on_reply: Called when the reply to the cell with this msg_id has been sent to the front end.
    on_message: Called with every message to front ends.
    """

    pin: Pin = lambda revision, cell, done: lambda: None
    on_user_cell: Callable[[], None] = lambda: None
    on_reply: Callable[[str], None] = lambda msg_id: None
    on_message: OnMessage = lambda message: None
