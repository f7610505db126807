"""Shows a notice in cells of which a part of the output may be lost, since the keeper was killed while they ran.

The kernel itself shows the notice in cells that still run when the successor can reach it
(`in_kernel/keeper_watch.py`). Other cells have ended in between, so their notice comes from the successor, before their
idle status. A cell whose beginning the successor has received lacks nothing.
"""

from __future__ import annotations

from typing import Iterable, Optional, Set

from ...wire.compose import Send
from ...wire.messages import Channel, Message
from ..takeover import ENDED, is_notice


class LostOutput:
    """`observe` gets each message of the kernel before it is sent to front ends; `settle` when the kernel is known to
    run no cell of the killed keeper, except for those in threads."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._known: Set[str] = set()  # msg_ids of cells that have begun since the takeover, or have a notice
        self._inherited: Optional[Set[str]] = None  # when settled: msg_ids of older cells without a notice

    def observe(self, message: Message) -> None:
        """Send a notice before this message, if the message is the first sign that output of its cell may be lost."""
        cell = message.parent_id
        if message.channel is not Channel.IOPUB or cell in self._known:
            return
        if self._inherited is not None and cell not in self._inherited:
            return
        msg_type, content = message.msg_type, message.content()
        state = content.get("execution_state") if msg_type == "status" else None
        shows_notice = msg_type == "stream" and is_notice(str(content.get("text")))
        if msg_type == "execute_input" or state == "busy" or shows_notice:
            self._known.add(cell)
        elif state == "idle" or self._inherited is not None:
            self.tell(message.parts[1])

    def tell(self, header: bytes) -> None:
        """Send a notice for the request with this header, unless it has a notice already, or is no cell."""
        request = Message(Channel.SHELL, 0, (header, b"{}", b"{}", b"{}"))
        if request.msg_type == "execute_request" and request.msg_id not in self._known:
            self._known.add(request.msg_id)
            self._send(Channel.IOPUB, 0, "stream", {"name": "stderr", "text": ENDED}, header)

    def settle(self, begun: Iterable[str]) -> None:
        """`begun`: msg_ids of the last cells that the kernel has begun. They get a notice when a thread of theirs
        goes on to write output."""
        self._inherited = set(begun) - self._known
        self._known = set()
