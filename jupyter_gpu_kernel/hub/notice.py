"""What a cell shows that was asked for while the node is out of reach: since when, why, and what would help.

The text is gone when the node is back: the notebook is then as if nothing had happened. This file knows no link.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

from ..errors import GpuKernelError
from ..wire.jupyter import make
from ..wire.messages import Channel, Message

AFTER = 3.0
"""Seconds a cell waits before it says so: most drops are shorter."""


class Notice:
    """`away` and `back` tell of the link, `asked` of a user's cell; `say` passes a message to the front ends."""

    def __init__(self, say: Callable[[Message], None], node: str) -> None:
        self._say = say
        self._node = node
        self._since = 0.0
        self._problem: GpuKernelError | None = None
        self._cell: bytes | None = None  # the header of the first cell that waits
        self._display = ""
        self._timer: asyncio.TimerHandle | None = None

    def away(self, problem: GpuKernelError | None) -> None:
        """The link is down (still); `problem`: why it does not come back, once that is known."""
        self._since = self._since or time.time()
        self._problem = problem
        if self._display:
            self._show()

    def asked(self, request: Message) -> None:
        """A user asks for a cell, which may have to wait."""
        if self._since and self._cell is None:
            self._cell = request.parts[0]
            self._timer = asyncio.get_running_loop().call_later(AFTER, self._show)

    def back(self) -> None:
        """What was asked goes on."""
        if self._timer is not None:
            self._timer.cancel()
        if self._display:
            self._tell("clear_output", {"wait": False})
        self._since, self._cell, self._display, self._timer = 0.0, None, "", None

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
        text = f"{self._node} is out of reach since {since}; the kernel goes on there. This cell runs when it is back."
        return f"{text}\n{self._problem}" if self._problem is not None else text

    def _tell(self, msg_type: str, content: dict[str, Any]) -> None:
        self._say(Message(Channel.IOPUB, 0, make(msg_type, content, self._cell or b"{}")))
