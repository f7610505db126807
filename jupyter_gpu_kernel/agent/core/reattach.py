"""A front end has left its kernel, and another one attaches: what the former one missed.

Cells that ran or waited when the former front end left go on, but their messages are only logged. Cells of the new
front end wait until those cells have ended (`waiting.py`): in the kernel's queue, an interrupt would abort all of them.
"""

from __future__ import annotations

import contextlib
import time
from typing import Iterable, Iterator, List, Set

from ...wire.kernel_messages.compose import on_iopub
from ...wire.messages import Message, MessageError
from ..log.cells import LoggedCell
from .log import Log


class Reattach:
    """The cells of front ends that have left (`missed`, `is_orphaned`), and requests of the new front end that were
    `answered` before the kernel had run them."""

    def __init__(self, log: Log) -> None:
        self.page_fills_cells = False
        """Whether a page has read the log since the front end attached. It fills the cells that it knows."""
        self.answered: Set[str] = set()
        """The keys of the requests that were answered before they ran: the kernel's messages for them are dropped."""
        self.utc_offset = 0
        """By how many seconds local time is ahead of UTC."""
        self._log = log

    @property
    def missed(self) -> List[LoggedCell]:
        """The cells of which the previous front end missed something, or that have not ended; oldest first."""
        return [cell for cell in self._log.state.cells.cells.values() if cell.missed]

    def begin(self, unfinished: Iterable[str], utc_offset: int) -> None:
        """Another front end attaches. `unfinished`: the keys of the cells that the kernel has or will get."""
        self.utc_offset = utc_offset
        self.answered &= {*unfinished}
        self.page_fills_cells = False

    def answer(self, cell: Message) -> None:
        """This code of a front end's own was replied to before the kernel runs it: VS Code lets its user do nothing
        before the reply, not even interrupt."""
        self._log.add("requests.add_answered", cell)
        self.answered.add(cell.key)

    def take_over(self) -> None:
        """A killed keeper has answered requests before the kernel had run them."""
        self.answered = {key for key, one in self._log.state.requests.pending.items() if one.is_answered}

    def is_orphaned(self, key: str) -> bool:
        """Return whether the request with this key is of a front end that has left."""
        return key in self._log.state.requests.orphaned

    def history_read(self) -> None:
        """A page has read the logged cells, and fills those that it shows."""
        self.page_fills_cells = True

    def missed_output(self, parent: bytes, utc_offset: int) -> List[Message]:
        """Return the output of the missed cells, as output of the request with this header."""
        self.utc_offset = utc_offset
        return [message for cell in self.missed for message in self._output(cell, parent)]

    def _output(self, cell: LoggedCell, parent: bytes) -> Iterator[Message]:
        runtime = self._log.runtime
        head = {"name": "stdout", "text": self.describe(cell) + "\n"}
        yield on_iopub(runtime, "stream", head, parent)
        for message in cell.shown.messages():
            if message.msg_type != "clear_output":  # it would clear the cells shown before it, too
                with contextlib.suppress(MessageError):  # no front end could read it either
                    yield on_iopub(runtime, message.msg_type, message.content(), parent)

    def describe(self, cell: LoggedCell) -> str:
        """Return one line of text about a cell."""
        code = (cell.code.strip().splitlines() or ["?"])[0][:60]
        if not cell.ended:
            return f"  still {cell.status}{', waiting for input' if cell.asks is not None else ''}: {code}"
        when = time.strftime("%H:%M:%S", time.gmtime(cell.finished + self.utc_offset))
        number = f"[{cell.count}] " if cell.count else ""
        dropped = " (not all of its output was kept)" if cell.dropped else ""
        return f"  {cell.status} at {when}: {number}{code}{dropped}"
