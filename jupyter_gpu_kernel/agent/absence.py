"""A front end left its kernel, another one returns to it: what was missed, and the words that greet it.

Cells that were running or waiting when the first one left go on; what they say belongs to nobody now and is kept.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, Iterable, List

from ..wire.messages import Channel, Message
from .missed import Cell, Missed

Say = Callable[[Channel, int, str, Dict[str, Any], bytes], None]
"""say(channel, client, msg_type, content, parent header): a message in the kernel's name."""


class Absence:
    """`begin` when somebody returns; `keeps` is asked for every message; `greet` at the first user cell."""

    def __init__(self, say: Say) -> None:
        self.missed = Missed()
        self._say = say
        self._facts: Dict[str, Any] = {}

    def begin(
        self,
        undelivered: Iterable[Message],
        unfinished: List[Message],
        recent: Iterable[Message],
        facts: Dict[str, Any],
    ) -> None:
        """`undelivered`: what the one who left did not hear; `unfinished`: its cells; `recent`: those
        answered lately; `facts`: our status."""
        for message in undelivered:
            self.missed.take(message)
        self.missed.recognise(recent)
        for request in unfinished:
            self.missed.expect(request)
        self._facts = facts

    def keeps(self, message: Message, parent: str) -> bool:
        """Whether this message is for somebody who left, and so is kept here."""
        if not self.missed.knows(parent):
            return False
        self.missed.take(message)
        return True

    def greet(self, request: Message) -> None:
        """In the first user cell: that this is the kernel of before, and what happened meanwhile."""
        if not self._facts:
            return
        facts, self._facts = self._facts, {}
        lines = [f"Back on kernel {facts['id']} on {facts['node']}; its variables are as you left them."]
        lines += [_line(cell) for cell in self.missed.cells]
        if self.missed.cells:
            lines.append("%gpu missed shows what they printed.")
        content = {"data": {"text/plain": "\n".join(lines)}, "metadata": {}, "transient": {}}
        self._say(Channel.IOPUB, 0, "display_data", content, request.parts[0])

    def show(self, parent: bytes) -> List[Dict[str, Any]]:
        """The cells that were missed; with a parent header their outputs are said again, as that cell's."""
        cells = self.missed.cells
        if parent:
            for cell in cells:
                self._show(cell, parent)
            self.missed.clear()
        return [cell.summary() for cell in cells]

    def _show(self, cell: Cell, parent: bytes) -> None:
        head = {"name": "stdout", "text": _line(cell) + "\n"}
        self._say(Channel.IOPUB, 0, "stream", head, parent)
        for parts in cell.outputs:
            msg_type = str(json.loads(parts[0].decode())["msg_type"])
            if msg_type != "clear_output":  # it would clear the cells shown before it, too
                self._say(Channel.IOPUB, 0, msg_type, json.loads(parts[3].decode()), parent)


def _line(cell: Cell) -> str:
    code = (cell.code.strip().splitlines() or ["?"])[0][:60]
    if not cell.status:
        return f"  still running: {code}"
    when = time.strftime("%H:%M:%S", time.localtime(cell.finished))
    number = f"[{cell.count}] " if cell.count else ""
    dropped = " (its output was too much to keep)" if cell.dropped else ""
    return f"  {cell.status} at {when}: {number}{code}{dropped}"
