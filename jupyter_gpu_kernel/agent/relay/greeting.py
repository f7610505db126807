"""What the first cell of a front end says of the kernel itself: shown until that cell has output of its own.

The text is for whoever runs the cell and not for the notebook that is saved: `clear_output` removes it, which would
remove real output as well. So the first output waits until there was time to read the text. No sockets here.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, Callable, Dict, List, Optional, Tuple

from ...wire.compose import PASSING, make
from ...wire.messages import Channel, Lane, Message
from ..loop import Timer

MOST = 256 * 1024
"""Bytes of output that wait; with more than that nobody reads the text any longer."""
ToHub = Callable[[Lane, Message], None]
Later = Callable[[float, Callable[[], None]], Timer]


class Greeting:
    """`show` a text in a cell, and ask `passes` for every message to the hub; what does not pass is sent later."""

    def __init__(self, to_hub: ToHub, later: Later) -> None:
        self._to_hub = to_hub
        self._later = later
        self._cell = ""  # the msg_id of the cell with the text
        self._parent = b""
        self._until = 0.0
        self._waiting: List[Tuple[Lane, Message]] = []
        self._size = 0
        self._timer: Optional[Timer] = None

    def show(self, request: Message, text: str, seconds: float) -> None:
        """In the cell that is asked for; `seconds`: for reading it."""
        self.end()
        self._cell, self._parent = str(request.header().get("msg_id")), request.parts[0]
        self._until = time.monotonic() + seconds
        transient = {"display_id": PASSING + uuid.uuid4().hex}
        content = {"data": {"text/plain": text}, "metadata": {}, "transient": transient}
        self._say("display_data", content)

    def passes(self, lane: Lane, message: Message, parent: str) -> bool:
        """Whether this message may go to the hub now."""
        if not self._cell or (lane is not Lane.ORDERED and message.channel is not Channel.STDIN):
            return True
        if not self._waiting and not (parent == self._cell and _is_output(message)):
            return True
        self._waiting.append((lane, message.unparsed()))
        self._size += sum(map(len, message.parts))
        left = self._until - time.monotonic()
        if (
            left <= 0 or self._size > MOST or message.channel is Channel.STDIN
        ):  # nobody keeps a question waiting
            self.end()
        elif self._timer is None:
            self._timer = self._later(left, self.end)
        return False

    def end(self) -> None:
        """The text goes, and what waited for that is sent."""
        if self._cell:
            self._say("clear_output", {"wait": False})
        for lane, message in self.withdraw():
            self._to_hub(lane, message)

    def withdraw(self) -> List[Tuple[Lane, Message]]:
        """Takes back what waits; nobody is left who could read the text."""
        waiting, self._waiting = self._waiting, []
        self._cell, self._size = "", 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return waiting

    def _say(self, msg_type: str, content: Dict[str, Any]) -> None:
        self._to_hub(Lane.ORDERED, Message(Channel.IOPUB, 0, make(msg_type, content, self._parent)))


def _is_output(message: Message) -> bool:
    """Whether this is output of a cell, a question of it, or its end."""
    msg_type = message.header().get("msg_type")
    if msg_type == "status":
        return message.content().get("execution_state") == "idle"
    return msg_type != "execute_input"
