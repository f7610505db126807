"""A front end left its kernel, another one returns to it: which cells it missed, and the words that greet it.

Cells that were running or waiting when the first one left go on; what they say belongs to nobody now: only the
history has it.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterable, List, Sequence, Set, Tuple

from ...wire.fields import load_object, text
from ...wire.messages import Channel, Message, MessageError
from ..paths import is_kernel_id
from .output.history import History, PastCell

READING = 2.0
"""Seconds for reading that somebody is back on a kernel, with all its variables."""
Say = Callable[[Channel, int, str, Dict[str, Any], bytes], None]
"""say(channel, client, msg_type, content, parent header): a message in the kernel's name."""
_HEADER = 64 * 1024


class Reattach:
    """`begin` when somebody returns; `concerns` is asked for every message; `greeting` is for the first user cell."""

    def __init__(self, history: History, say: Say) -> None:
        self._history = history
        self._say = say
        self._missed: Set[str] = set()
        self._orphaned: Set[str] = set()
        self._returned = self._page_fills = False
        self._others: Sequence[str] = ()
        self._before = ""

    @property
    def missed(self) -> List[PastCell]:
        """The cells that did something which the one who left did not hear, or are still to do so, oldest first."""
        return [cell for msg_id, cell in self._history.cells.items() if msg_id in self._missed]

    def begin(
        self, undelivered: Iterable[Message], unfinished: Iterable[str], others: Sequence[str] = ()
    ) -> None:
        """`undelivered`: what the one who left did not hear; `unfinished`: msg_ids of what it asked; `others`: ids of
        older kernels that the same notebook left."""
        self._missed.update(filter(None, map(_cell_of, undelivered)))
        self._orphaned.update(unfinished)
        self._missed.update(self._orphaned)
        self._returned, self._others, self._before = True, list(filter(is_kernel_id, others)), ""
        self._page_fills = False

    def replaces(self, before: str) -> None:
        """This is a new kernel: its notebook was restarted, and the one `before` has ended."""
        self._before = before

    def journal(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The history, for a page that fills those cells that are still there, which it knows by their ids."""
        self._page_fills = True
        return self._history.answer(request)

    def concerns(self, parent: str) -> bool:
        """Whether a message with this parent is for somebody who left."""
        return parent in self._orphaned

    def greeting(self, tell_facts: Callable[[], Dict[str, Any]]) -> Tuple[str, float]:
        """The text for the first user cell, once, and how long that should be there; "" if there is none.

        `tell_facts()`: our status, and "program": how the user runs our commands.
        """
        if not self._before and not self._returned:
            return "", 0.0
        facts, lines, seconds = tell_facts(), [], 0.0
        if self._before:
            gpus = f" with {', '.join(facts['gpu_names'])}" if facts["gpu_names"] else ""
            lines = [
                f"This is a fresh kernel on {facts['node']}{gpus}; the one before, {self._before}, has ended."
            ]
        else:
            seconds = READING
            lines = [f"Back on kernel {facts['id']} on {facts['node']}; its variables are as you left them."]
            for other in self._others:
                stop = f"{facts['program']} stop {other}"
                lines.append(f"This notebook has left another kernel, {other}. To end it: {stop}")
            cells = self.missed
            lines += [_line(cell) for cell in cells]
            if any(not (self._page_fills and cell.cell_id) for cell in cells):
                lines.append("%gpu missed shows what they printed.")
        self._returned, self._others, self._before = False, (), ""
        return "\n".join(lines), seconds

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
        for message in cell.shown.messages():
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
