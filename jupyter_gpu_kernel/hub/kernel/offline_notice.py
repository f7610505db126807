"""What a cell shows while the node is out of reach: since when, why, and what would help. It is the cell that runs, if
it has shown nothing so far, since the text could not be removed from other output; or the first one that waits.

The text is gone when the node is back: the notebook is then as if nothing had happened. This file knows no link.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

from ...errors import GpuKernelError
from ...wire.compose import make
from ...wire.messages import Channel, Message
from ...wire.texts import with_program

AFTER = 3.0
"""Seconds a cell waits before it says so: most drops are shorter."""


class OfflineNotice:
    """`away` and `back` tell of the link, `asked` of a user's cell; `say` passes a message to the front ends."""

    def __init__(self, say: Callable[[Message], None], node: str, program: str = "") -> None:
        """`program`: how the user runs our commands, if that is known."""
        self._program = program
        self._say = say
        self._node = node
        self._since = 0.0
        self._problem: GpuKernelError | None = None
        self._cell: bytes | None = None  # the header of the first cell that waits
        self._runs = False  # whether that cell runs
        self._interrupted = False  # whether an interrupt of that cell is on its way
        self._display = ""
        self._timer: asyncio.TimerHandle | None = None

    def away(
        self, problem: GpuKernelError | None, silence: float = 0.0, running: Message | None = None
    ) -> None:
        """The link is down (still), and nothing has been heard for `silence` seconds. `problem`: why it does not come
        back, once that is known; `running`: the cell that runs, if it has shown nothing."""
        self._problem = problem
        if not self._since:
            self._since = time.time() - silence
            if running is not None:
                self._is_for(running, max(0.0, AFTER - silence))
                self._runs = True
        elif self._display:
            self._show()

    def asked(self, request: Message) -> None:
        """A user asks for a cell, which may have to wait."""
        if self._since and self._cell is None:
            self._is_for(request, AFTER)

    def interrupted(self, cells: list[Message]) -> None:
        """The user has asked for an interrupt: these cells, which waited, wait no longer. One that runs on the node is
        interrupted when the link is back."""
        if any(cell.parts[0] == self._cell for cell in cells):
            self._remove()
        elif self._runs:
            self._interrupted = True
            if self._display:
                self._show()

    def for_user(self, text: str) -> str:
        """The text, which names our commands as this user can run them."""
        return with_program(text, self._program)

    def _is_for(self, cell: Message, after: float) -> None:
        self._cell = cell.parts[0]
        self._timer = asyncio.get_running_loop().call_later(after, self._show)

    def back(self) -> None:
        """What was asked goes on."""
        self._remove()
        self._since = 0.0

    def _remove(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._display:
            self._tell("clear_output", {"wait": False})
        self._cell, self._display, self._timer = None, "", None
        self._runs = self._interrupted = False

    def _show(self) -> None:
        msg_type = "update_display_data" if self._display else "display_data"
        self._display = self._display or uuid.uuid4().hex
        content = {
            "data": {"text/plain": self._text()},
            "metadata": {},
            "transient": {"display_id": self._display},
        }
        self._tell(msg_type, content)

    def _text(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self._since))
        then = "This cell goes on there." if self._runs else "This cell runs when it is back."
        if self._interrupted:
            then = "This cell is interrupted when it is back."
        text = f"{self._node} is out of reach since {since}; the kernel goes on there. {then}"
        return self.for_user(f"{text}\n{self._problem}") if self._problem is not None else text

    def _tell(self, msg_type: str, content: dict[str, Any]) -> None:
        self._say(Message(Channel.IOPUB, 0, make(msg_type, content, self._cell or b"{}")))
