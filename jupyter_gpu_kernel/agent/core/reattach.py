"""A front end has left its kernel, and another one attaches: what the former one missed.

Cells that ran or waited when the former front end left go on, but their messages are only logged. Cells of the new
front end wait until those cells have ended (`waiting.py`): in the kernel's queue, an interrupt would abort all of them.
"""

from __future__ import annotations

import contextlib
import time
from typing import Iterable, List, Set

from ...wire.kernel_messages.answers import Answers
from ...wire.kernel_messages.compose import Send, is_user_cell
from ...wire.messages import Channel, Message, MessageError
from ..log.cells import LoggedCell
from ..log.log import Log


class Reattach:
    """The cells of front ends that have left (`missed`, `is_orphaned`), and requests of the new front end that were
    answered before the kernel had run them (`is_answered`)."""

    def __init__(self, log: Log, answers: Answers, send: Send) -> None:
        self.page_fills_cells = False
        """Whether a page has read the log since the front end attached. It fills the cells that it knows."""
        self._log = log
        self._answers = answers
        self._send = send
        self._answered: Set[str] = set()

    # -------------------------------------------------------------------------------------- missed cells

    @property
    def missed(self) -> List[LoggedCell]:
        """The cells of which the previous front end missed something, or that have not ended; oldest first."""
        return [cell for cell in self._log.state.cells.cells.values() if cell.missed]

    def begin(self, unfinished: Iterable[str]) -> None:
        """Another front end attaches. `unfinished`: the keys of the cells that the kernel has or will get."""
        self._answered &= {*unfinished}
        self.page_fills_cells = False

    def is_orphaned(self, key: str) -> bool:
        """Return whether the request with this key is of a front end that has left."""
        return key in self._log.state.requests.orphaned

    def history_read(self) -> None:
        """A page has read the logged cells, and fills those that it shows."""
        self.page_fills_cells = True

    def show_missed(self, parent: bytes) -> None:
        """Send the output of the missed cells again, as output of the request with this header."""
        for cell in self.missed:
            self._show(cell, parent)
        self._log.add("cells.missed_shown")

    def _show(self, cell: LoggedCell, parent: bytes) -> None:
        head = {"name": "stdout", "text": describe(cell) + "\n"}
        self._send(Channel.IOPUB, 0, "stream", head, parent)
        for message in cell.shown.messages():
            if message.msg_type != "clear_output":  # it would clear the cells shown before it, too
                with contextlib.suppress(MessageError):  # no front end could read it either
                    self._send(Channel.IOPUB, 0, message.msg_type, message.content(), parent)

    # -------------------------------------------------------------------------------------- the new front end's code

    def answer_ahead(self, request: Message) -> None:
        """Answer an execute_request that waits for the former front end's cells, if no user has run it.

        Code that the front end runs for itself is answered at once: VS Code runs some when it starts, and lets its
        user do nothing before the reply, not even interrupt.
        """
        if not is_user_cell(request):
            count = self._answers.count
            reply = {"status": "ok", "execution_count": count, "user_expressions": {}, "payload": []}
            self._answers.reply(request, reply)
            self._answered.add(request.key)

    def is_answered(self, key: str) -> bool:
        """Return whether the request with this key was answered before it ran: the kernel's messages for the request
        are dropped."""
        return key in self._answered


def describe(cell: LoggedCell) -> str:
    """Return one line of text about a cell."""
    code = (cell.code.strip().splitlines() or ["?"])[0][:60]
    if not cell.ended:
        return f"  still {cell.status}{', waiting for input' if cell.asks is not None else ''}: {code}"
    when = time.strftime("%H:%M:%S", time.localtime(cell.finished))
    number = f"[{cell.count}] " if cell.count else ""
    dropped = " (not all of its output was kept)" if cell.dropped else ""
    return f"  {cell.status} at {when}: {number}{code}{dropped}"
