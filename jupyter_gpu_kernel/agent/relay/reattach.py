"""A front end has left its kernel, and another one attaches: what the former missed, and what the latter is shown.

Cells that ran or waited when the former front end left go on, but their messages are only logged. Cells of the new
front end wait until those cells have ended (`waiting.py`): in the kernel's queue, an interrupt would abort all of them.

The greeting is a text about the kernel in the new front end's first cell, shown until that cell has output of its own.
The greeting is for the user who runs the cell, not for the saved notebook. `clear_output` removes the greeting, and
would remove real output as well. Therefore the cell's first output waits until there was time to read the greeting.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from ...wire.fields import load_object, text
from ...wire.kernel_messages.answers import Answers
from ...wire.kernel_messages.compose import Send, TransientDisplay, composer, is_user_cell
from ...wire.messages import Channel, Lane, Message
from ...wire.texts import COMMAND
from ..kernel_settings import KernelSettings
from ..log.cells import LoggedCell
from ..log.log import Log
from ..paths import is_kernel_id
from ..system.loop import Loop, Timer

_MAX_HEADER = 64 * 1024
READING_TIME = 2.0
"""Seconds that a text is shown at least if it says more than that this is the kernel as it was left."""
MAX_WAITING = 256 * 1024
"""Bytes of output that wait. With more, the text is removed at once."""


ToHub = Callable[[Lane, Message], None]


class Reattach:
    """The cells of front ends that have left (`missed`, `is_orphaned`), and requests of the new front end that were
    answered before the kernel had run them (`is_answered`)."""

    def __init__(self, log: Log, answers: Answers, send: Send) -> None:
        self.page_fills_cells = False
        """Whether a page has read the log since the front end attached. It fills the cells that it knows."""
        self._state = log.state
        self._answers = answers
        self._send = send
        self._answered: Set[str] = set()

    # -------------------------------------------------------------------------------------- missed cells

    @property
    def missed(self) -> List[LoggedCell]:
        """The cells of which the previous front end missed something, or that have not ended; oldest first."""
        return [cell for cell in self._state.cells.cells.values() if cell.missed]

    def begin(self, unfinished: Iterable[str]) -> None:
        """Another front end attaches. `unfinished`: the keys of the cells that the kernel has or will get."""
        self._answered &= {*unfinished}
        self.page_fills_cells = False

    def is_orphaned(self, key: str) -> bool:
        """Return whether the request with this key is of a front end that has left."""
        return key in self._state.requests.orphaned

    def journal(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return a page of the logged cells, for a front end that fills its cells by their ids."""
        self.page_fills_cells = True
        return self._state.cells.page_of(request)

    def missed_cells(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return the summaries of the missed cells, for the kernel's user.

        With `parent`, the header of the cell that asks, their output is sent again as output of that cell.
        """
        parent = text(request, "parent", "", most=_MAX_HEADER).encode("utf-8", "replace")
        if parent:
            load_object(parent)
        cells = self.missed
        if parent:
            for cell in cells:
                self._show(cell, parent)
                cell.missed = not cell.ended
        return {"cells": [cell.summary() for cell in cells]}

    def _show(self, cell: LoggedCell, parent: bytes) -> None:
        head = {"name": "stdout", "text": describe(cell) + "\n"}
        self._send(Channel.IOPUB, 0, "stream", head, parent)
        for message in cell.shown.messages():
            if message.msg_type != "clear_output":  # it would clear the cells shown before it, too
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


class GreetingText:
    """The text that the next user cell shows, once, after a front end has returned or a kernel was replaced."""

    def __init__(self, settings: KernelSettings, reattach: Reattach) -> None:
        """`settings`: the kernel's."""
        self._kernel_id = settings.id
        self._program = settings.program or COMMAND
        self._node = os.uname().nodename
        self._reattach = reattach
        self._returned = False
        self._other_kernels: Sequence[str] = ()
        self._previous_kernel = ""
        self._notice = self._warning = ""
        self._reported: Set[str] = (
            set()
        )  # the keys of cells that an earlier greeting has named when they had ended

    def set_notice(self, text: str) -> None:
        """The next user cell also shows this text about the kernel."""
        self._notice = text

    def set_warning(self, text: str) -> None:
        """The next user cell also shows this warning. "" withdraws the last warning."""
        self._warning = text

    def front_end_returned(self, other_kernels: Sequence[str]) -> None:
        """Another front end attaches. `other_kernels`: ids of older kernels that its notebook has left."""
        self._returned, self._previous_kernel = True, ""
        self._other_kernels = list(filter(is_kernel_id, other_kernels))

    def kernel_replaced(self, previous_kernel: str) -> None:
        """The kernel is new: its notebook was restarted, and `previous_kernel` has ended."""
        self._previous_kernel = previous_kernel

    def take(self, gpu_names: Sequence[str], wait_text: str = "") -> Tuple[str, float]:
        """Return the text and how many seconds it should be shown; ("", 0.0) if there is none.

        wait_text: What the first of the missed cells waits for, if it does.
        """
        seconds, lines = 0.0, []
        if self._previous_kernel:
            lines.append(self._about_new_kernel(gpu_names))
        elif self._returned:
            lines = [*self._about_return(), *filter(None, [wait_text])]
            seconds = READING_TIME if len(lines) > 1 else 0.0
        if self._notice or self._warning:
            seconds, lines = READING_TIME, [*lines, *filter(None, [self._notice, self._warning])]
        self._returned, self._other_kernels, self._previous_kernel = False, (), ""
        self._notice = self._warning = ""
        return "\n".join(lines), seconds

    def _about_new_kernel(self, gpu_names: Sequence[str]) -> str:
        gpus = f" with {', '.join(gpu_names)}" if gpu_names else ""
        before = self._previous_kernel
        return f"This is a new kernel on {self._node}{gpus}; the previous one, {before}, has ended."

    def _about_return(self) -> List[str]:
        missed = self._reattach.missed
        cells = [cell for cell in missed if cell.key not in self._reported]
        self._reported = {cell.key for cell in missed if cell.ended}
        lines: List[str] = []
        if any(not (self._reattach.page_fills_cells and cell.cell_id) for cell in cells):
            lines.append("Output of the cells below is missing in this notebook. To see it, run: %gpu missed")
        lines.append(f"Back on kernel {self._kernel_id} on {self._node}; its variables are as you left them.")
        for other in self._other_kernels:
            stop = f"“{self._program} stop {other}”"
            lines.append(f"Another kernel of this notebook is still running: {other}. To end it, run {stop}.")
        lines += map(describe, cells)
        if any(cell.asks is not None and not cell.ended for cell in cells):
            lines.append("Its question is not asked again. To end the cell, interrupt the kernel.")
        return lines


class Greeting:
    """Shows the text in a cell, and holds messages to the hub back meanwhile."""

    def __init__(self, loop: Loop, to_hub: ToHub) -> None:
        self.waiting: List[Tuple[Lane, Message]] = []
        """The messages that are held back."""
        self._loop = loop
        self._to_hub = to_hub
        send = composer(loop.runtime, lambda message: to_hub(Lane.ORDERED, message))
        self._display = TransientDisplay(loop.runtime, send)
        self._cell = ""  # the key of the cell with the text
        self._until = 0.0
        self._size = 0
        self._timer: Optional[Timer] = None

    def show(self, request: Message, text: str, seconds: float) -> None:
        """Show the text, if there is one, in the cell of this request, for so many seconds at least."""
        if not text:
            return
        self.end()
        self._cell = request.key
        self._until = self._loop.time() + seconds
        self._display.show(text, request.parts[0])

    def passes(self, lane: Lane, message: Message) -> bool:
        """Return whether this message may be sent to the hub now; if not, it is sent later."""
        if not self._cell or (lane is not Lane.ORDERED and message.channel is not Channel.STDIN):
            return True
        if not self.waiting and not (message.parent_key == self._cell and _ends_greeting(message)):
            return True
        self.waiting.append((lane, message.unparsed()))
        self._size += sum(map(len, message.parts))
        remaining = self._until - self._loop.time()
        if (
            remaining <= 0 or self._size > MAX_WAITING or message.channel is Channel.STDIN
        ):  # input() must not wait
            self.end()
        elif self._timer is None:
            self._timer = self._loop.later(remaining, self.end)
        return False

    def end(self) -> None:
        """Remove the text, and send what waits."""
        self._display.clear()
        for lane, message in self.withdraw():
            self._to_hub(lane, message)

    def withdraw(self) -> List[Tuple[Lane, Message]]:
        """Return what waits, which is no longer kept: the front end that shows the text has left."""
        waiting, self.waiting = self.waiting, []
        self._cell, self._size = "", 0
        self._display.forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return waiting


def _ends_greeting(message: Message) -> bool:
    """Return whether this is a cell's output, its question to the user, or its end."""
    if message.msg_type == "status":
        return message.content().get("execution_state") == "idle"
    return message.msg_type != "execute_input"
