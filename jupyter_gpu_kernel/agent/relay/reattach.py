"""A front end has left its kernel, and another one attaches: which cells it missed, and which of its cells wait.

Cells that ran or waited when the first front end left go on, but their messages are for nobody: only the history has
them. Execute requests of the new front end wait here until those cells have ended. In the kernel's queue, an interrupt
would abort them as well.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterable, List, Set

from ...wire.answers import Answers
from ...wire.compose import Send, is_user_cell
from ...wire.fields import load_object, text
from ...wire.messages import Channel, Message, MessageError
from .output.history import History, PastCell

_MAX_HEADER = 64 * 1024


class Reattach:
    """The cells of front ends that left (`missed`, `is_orphaned`) and the deferred cells of the new one."""

    def __init__(self, history: History, answers: Answers, send: Send) -> None:
        self.page_fills_cells = False
        """Whether a page has read the history since the front end attached. It fills the cells that it knows."""
        self._history = history
        self._answers = answers
        self._send = send
        self._missed: Set[str] = set()
        self._orphaned: Set[str] = set()
        self._deferred: List[Message] = []
        self._answered: Set[str] = set()

    # -------------------------------------------------------------------------------------- missed cells

    @property
    def missed(self) -> List[PastCell]:
        """The cells of which the previous front end missed something, or that have not ended; oldest first."""
        return [cell for msg_id, cell in self._history.cells.items() if msg_id in self._missed]

    def begin(self, undelivered: Iterable[Message], unanswered: Iterable[str]) -> None:
        """Another front end attaches.

        undelivered: The messages that did not reach the previous one.
        unanswered: The msg_ids of its requests that have no reply.
        """
        self._missed.update(filter(None, map(_parent_id, undelivered)))
        self._orphaned.update(unanswered)
        self._missed.update(self._orphaned)
        self.page_fills_cells = False

    def is_orphaned(self, msg_id: str) -> bool:
        """Return whether this request is of a front end that has left."""
        return msg_id in self._orphaned

    def journal(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return a page of the history, for a front end that fills its cells by their ids."""
        self.page_fills_cells = True
        return self._history.page_of(request)

    def missed_cells(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Answer the kernel's user, who asks what was missed: {"parent": the header of the asking cell, or nothing}."""
        parent = text(request, "parent", "", most=_MAX_HEADER).encode("utf-8", "replace")
        if parent:
            load_object(parent)
        return {"cells": self.show(parent)}

    def show(self, parent: bytes) -> List[Dict[str, Any]]:
        """Return the missed cells' summaries. With a parent header, their output is sent again as that cell's."""
        cells = self.missed
        if parent:
            for cell in cells:
                self._show(cell, parent)
            self._missed.difference_update(cell.msg_id for cell in cells if cell.ended)
        return [cell.summary() for cell in cells]

    def _show(self, cell: PastCell, parent: bytes) -> None:
        head = {"name": "stdout", "text": describe(cell) + "\n"}
        self._send(Channel.IOPUB, 0, "stream", head, parent)
        for message in cell.shown.messages():
            if message.msg_type != "clear_output":  # it would clear the cells shown before it, too
                self._send(Channel.IOPUB, 0, message.msg_type, message.content(), parent)

    # -------------------------------------------------------------------------------------- deferred cells

    @property
    def unanswered(self) -> List[Message]:
        """The deferred cells that have no reply yet."""
        return [request for request in self._deferred if not self.is_answered(request.msg_id)]

    def must_wait(self, pending: Iterable[str]) -> bool:
        """Return whether one of the `pending` cells is of a front end that has left."""
        return any(map(self.is_orphaned, pending))

    def defer(self, request: Message) -> None:
        """Keep an execute_request until `take_deferred`.

        Code that the front end runs for itself is answered at once: VS Code runs some when it starts, and lets its
        user do nothing before the reply, not even interrupt.
        """
        self._deferred.append(request.unparsed())
        if not is_user_cell(request):
            count = self._answers.count
            reply = {"status": "ok", "execution_count": count, "user_expressions": {}, "payload": []}
            self._answers.reply(request, reply)
            self._answered.add(request.msg_id)

    def take_deferred(self) -> List[Message]:
        """Return the deferred cells, which are no longer kept."""
        deferred, self._deferred = self._deferred, []
        return deferred

    def is_answered(self, msg_id: str) -> bool:
        """Return whether this request was answered before it ran: the kernel's messages for it are dropped."""
        return msg_id in self._answered


def describe(cell: PastCell) -> str:
    """Return one line of text about a cell."""
    code = (cell.code.strip().splitlines() or ["?"])[0][:60]
    if not cell.ended:
        return f"  still {cell.status}: {code}"
    when = time.strftime("%H:%M:%S", time.localtime(cell.finished))
    number = f"[{cell.count}] " if cell.count else ""
    dropped = " (not all of its output was kept)" if cell.dropped else ""
    return f"  {cell.status} at {when}: {number}{code}{dropped}"


def _parent_id(message: Message) -> str:
    try:
        return message.parent_id
    except MessageError:
        return ""
