"""A front end left its kernel, another one returns to it: which cells it missed, and the words that greet it.

Cells that were running or waiting when the first one left go on; what they say belongs to nobody now: only the
history has it.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterable, List, Set

from ..wire.fields import load_object, text
from ..wire.messages import Channel, Message, MessageError
from .journal.history import History, PastCell

Say = Callable[[Channel, int, str, Dict[str, Any], bytes], None]
"""say(channel, client, msg_type, content, parent header): a message in the kernel's name."""
_HEADER = 64 * 1024


class Absence:
    """`begin` when somebody returns; `concerns` is asked for every message; `greet` at the first user cell."""

    def __init__(self, history: History, say: Say) -> None:
        self._history = history
        self._say = say
        self._missed: Set[str] = set()
        self._orphaned: Set[str] = set()
        self._greeting: List[str] = []

    @property
    def missed(self) -> List[PastCell]:
        """The cells that did something which the one who left did not hear, oldest first."""
        cells = (cell for msg_id, cell in self._history.cells.items() if msg_id in self._missed)
        return [cell for cell in cells if cell.shown or cell.ended]

    def begin(self, undelivered: Iterable[Message], unfinished: Iterable[str], facts: Dict[str, Any]) -> None:
        """`undelivered`: what the one who left did not hear; `unfinished`: msg_ids of what it asked; `facts`: our
        status."""
        self._missed.update(filter(None, map(_cell_of, undelivered)))
        self._orphaned.update(unfinished)
        self._missed.update(self._orphaned)
        self._greeting = [
            f"Back on kernel {facts['id']} on {facts['node']}; its variables are as you left them."
        ]

    def concerns(self, parent: str) -> bool:
        """Whether a message with this parent is for somebody who left."""
        return parent in self._orphaned

    def announce(self, line: str) -> None:
        """The next user cell begins with this."""
        self._greeting = [line]

    def greet(self, request: Message) -> None:
        """In the first user cell: that this is the kernel of before, and what happened meanwhile."""
        if not self._greeting:
            return
        lines, self._greeting = self._greeting, []
        cells = self.missed
        lines += [_line(cell) for cell in cells]
        if cells:
            lines.append("%gpu missed shows what they printed.")
        content = {"data": {"text/plain": "\n".join(lines)}, "metadata": {}, "transient": {}}
        self._say(Channel.IOPUB, 0, "display_data", content, request.parts[0])

    def asked(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The kernel's user asks what was missed: {parent: the header of the cell that asks, or nothing}."""
        parent = text(request, "parent", "", most=_HEADER).encode("utf-8", "replace")
        if parent:
            load_object(parent)
        return {"cells": self.show(parent)}

    def show(self, parent: bytes) -> List[Dict[str, Any]]:
        """The cells that were missed; with a parent header their outputs are said again, as that cell's."""
        cells = self.missed
        if parent:
            for cell in cells:
                self._show(cell, parent)
            self._missed.difference_update(cell.msg_id for cell in cells if cell.ended)
        return [cell.summary() for cell in cells]

    def _show(self, cell: PastCell, parent: bytes) -> None:
        head = {"name": "stdout", "text": _line(cell) + "\n"}
        self._say(Channel.IOPUB, 0, "stream", head, parent)
        for message in cell.outputs:
            msg_type = str(message.header().get("msg_type"))
            if msg_type != "clear_output":  # it would clear the cells shown before it, too
                self._say(Channel.IOPUB, 0, msg_type, message.content(), parent)


def _cell_of(message: Message) -> str:
    try:
        return str(message.parent().get("msg_id", ""))
    except MessageError:
        return ""


def _line(cell: PastCell) -> str:
    code = (cell.code.strip().splitlines() or ["?"])[0][:60]
    if not cell.ended:
        return f"  still {cell.status}: {code}"
    when = time.strftime("%H:%M:%S", time.localtime(cell.finished))
    number = f"[{cell.count}] " if cell.count else ""
    dropped = " (its output was too much to keep)" if cell.dropped else ""
    return f"  {cell.status} at {when}: {number}{code}{dropped}"
