"""Texts about the kernel in a user's cell, which are for the user who runs the cell, mostly not for the saved notebook.

The greeting is shown in a new front end's first cell until that cell has output of its own; only the hint that output
of earlier cells is missing stays in the cell. `clear_output` removes the greeting, and would remove real output, too.
Therefore the cell's first output waits until there was time to read the greeting. Another text is shown in the first
cell that waits for GPUs, and says what the cell waits for.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Set

from ...wire.kernel_messages.compose import TransientDisplay
from ...wire.messages import Channel, Lane, Message, lane_of
from ...wire.texts import COMMAND
from ..kernel_settings import KernelSettings
from ..log.requests import is_failure
from ..paths import is_kernel_id
from .effects import SetTimer
from .log import Log
from .reattach import Reattach

READING_TIME = 2.0
"""Seconds that a text is shown at least if it says more than that this is the kernel as it was left."""
MAX_WAITING = 256 * 1024
"""Bytes of output that wait. With more, the text is removed at once."""
SHOW_AFTER = 1.5
"""Seconds that a cell waits for GPUs before it shows why: its user may want a reason then."""
GREETING_TIMER = "greeting"
WAIT_TIMER = "wait text"


_MISSING = "Output of cells is missing in this notebook. To see it, run: %gpu missed"


class Words(NamedTuple):
    """What a greeting says, for how many `seconds` it is shown at least, and the text that then `stays` in the cell."""

    text: str = ""
    seconds: float = 0.0
    stays: str = ""


class GreetingText:
    """The text that the next user cell shows, once, after a front end has returned or a kernel was replaced."""

    def __init__(self, settings: KernelSettings, node: str, reattach: Reattach) -> None:
        """`settings`: the kernel's. `node`: the name of this machine."""
        self._kernel_id = settings.id
        self._program = settings.program or COMMAND
        self._node = node
        self._reattach = reattach
        self._returned = False
        self._other_kernels: Sequence[str] = ()
        self._texts = {"replaced": "", "notice": "", "warning": ""}
        self._reported: Set[str] = set()  # the keys of ended cells that an earlier greeting has named

    def change(self, kind: str, text: str) -> None:
        """The next user cell also shows this: see `GreetingChanged`."""
        self._texts[kind] = text

    def front_end_returned(self, other_kernels: Sequence[str]) -> None:
        """Another front end attaches. `other_kernels`: ids of older kernels that its notebook has left."""
        self._returned, self._texts["replaced"] = True, ""
        self._other_kernels = list(filter(is_kernel_id, other_kernels))

    def take(self, gpu_names: Sequence[str], wait_text: str = "") -> Words:
        """Return what is to be said now, once.

        wait_text: What the first of the missed cells waits for, if it does.
        """
        replaced, *texts = self._texts.values()
        seconds, lines, stays = 0.0, [], ""
        if replaced:
            lines.append(self._about_new_kernel(replaced, gpu_names))
        elif self._returned:
            lines = [*self._about_return(), *filter(None, [wait_text])]
            seconds = READING_TIME if len(lines) > 1 else 0.0
            stays = _MISSING if _MISSING in lines else ""
        if any(texts):
            seconds, lines = READING_TIME, [*lines, *filter(None, texts)]
        self._returned, self._other_kernels = False, ()
        self._texts = dict.fromkeys(self._texts, "")
        return Words("\n".join(lines), seconds, stays)

    def _about_new_kernel(self, replaced: str, gpu_names: Sequence[str]) -> str:
        gpus = f" with {', '.join(gpu_names)}" if gpu_names else ""
        return f"This is a new kernel on {self._node}{gpus}; the previous one, {replaced}, has ended."

    def _about_return(self) -> List[str]:
        missed = self._reattach.missed
        cells = [cell for cell in missed if cell.key not in self._reported]
        self._reported = {cell.key for cell in missed if cell.ended}
        lines: List[str] = []
        if any(not (self._reattach.page_fills_cells and cell.cell_id) for cell in cells):
            lines.append(_MISSING)
        lines.append(f"Back on kernel {self._kernel_id} on {self._node}; its variables are as you left them.")
        for other in self._other_kernels:
            stop = f"“{self._program} stop {other}”"
            lines.append(f"Another kernel of this notebook is still running: {other}. To end it, run {stop}.")
        lines += map(self._reattach.describe, cells)
        if any(cell.asks is not None and not cell.ended for cell in cells):
            lines.append("Its question is not asked again. To end the cell, interrupt the kernel.")
        return lines


class Greeting:
    """Shows the text in a cell, and holds messages to the hub back meanwhile. The methods return the messages that are
    to be sent to the hub now, in this order."""

    def __init__(self, log: Log) -> None:
        self.waiting: List[Message] = []
        """The messages that are held back."""
        self._log = log
        self._display = TransientDisplay(log.runtime)
        self._cell = ""  # the key of the cell with the text
        self._stays = ""
        self._until = 0.0
        self._size = 0

    def show(self, request: Message, words: Words) -> List[Message]:
        """Show the text, if there is one, in the cell of this request."""
        if not words.text:
            return []
        messages = [*self.end(), *self._display.show(words.text, request.parts[0])]
        self._cell, self._until = request.key, self._log.runtime.monotonic() + words.seconds
        self._stays = words.stays
        return messages

    def pass_on(self, message: Message) -> List[Message]:
        """Pass this message on, now or later."""
        if not self._cell or not self._may_wait(message):
            return [message]
        if not self.waiting and not _ends_greeting(message, self._cell):
            return [message]
        if not self.waiting:
            self._log.effects.append(SetTimer(GREETING_TIMER, self._until))
        self.waiting.append(message.unparsed())
        self._size += sum(map(len, message.parts))
        if self._size > MAX_WAITING or message.channel is Channel.STDIN:  # input() must not wait
            return self.end()
        return self.end_when_read()

    def _may_wait(self, message: Message) -> bool:
        """Return whether the message may be held back. The status of a request that has a reply and is no cell is not:
        if the keeper, which may have made this status, is killed, nobody makes it again. A status without a request
        corrects the idle status before it, and stays behind that."""
        if message.msg_type == "status" and message.parts[1] == b"{}":
            return any(b'"idle"' in one.parts[3] for one in self.waiting)
        if message.msg_type == "status":
            return b'_request"' not in message.parts[1] or b'"execute_request"' in message.parts[1]
        return lane_of(message, message.msg_type) is Lane.ORDERED or message.channel is Channel.STDIN

    def holds_failure(self, client: int) -> bool:
        """Return whether the reply to a cell of this client is held back that has failed and stops those behind it."""
        replies = (one for one in self.waiting if one.channel is Channel.SHELL and one.client == client)
        failed = (self._log.state.requests.pending.get(one.parent_key) for one in replies if is_failure(one))
        return any(cell is not None and cell.stops_others for cell in failed)

    def end_when_read(self) -> List[Message]:
        """Remove the text if there was time to read it, and pass on what waits."""
        return self.end() if self._until <= self._log.runtime.monotonic() else []

    def end(self) -> List[Message]:
        """Remove the text, but for what of it stays, and pass on what waits."""
        stays = self._stays if self._display.is_shown else ""
        return [*(self._display.keep(stays) if stays else self._display.clear()), *self._take()]

    def withdraw(self) -> List[Message]:
        """Return what waits, which is no longer kept: the front end that shows the text has left."""
        self._display.forget()
        return self._take()

    def _take(self) -> List[Message]:
        waiting, self.waiting = self.waiting, []
        self._cell, self._size = "", 0
        return waiting


def _ends_greeting(message: Message, cell: str) -> bool:
    """Return whether this is the output of the cell with this key, its question to the user, or its end."""
    begins = message.msg_type == "status" and message.content().get("execution_state") != "idle"
    return message.parent_key == cell and message.msg_type != "execute_input" and not begins


class WaitText:
    """Shows `text` in the cell of the last call of `move_to`. The methods return the messages by which front ends show
    or remove the text."""

    def __init__(self, log: Log) -> None:
        self.text = ""
        """What the cell waits for."""
        self._log = log
        self._display = TransientDisplay(log.runtime)
        self._header = b""  # of the cell
        self._is_due = False

    def move_to(self, cell: Optional[Message]) -> List[Message]:
        """This cell is the first that waits. None: no cell waits."""
        if cell is not None:
            if not self._header:
                self._log.effects.append(SetTimer(WAIT_TIMER, self._log.runtime.monotonic() + SHOW_AFTER))
            self._header = cell.parts[0]
            return self._show()
        if self._header:
            self._header, self._is_due, self.text = b"", False, ""
        return self._display.clear()

    def set_text(self, text: str) -> List[Message]:
        """Set what the cell waits for."""
        self.text = text
        return self._show()

    def clear(self) -> List[Message]:
        """Remove the text, as the cell is about to run or to fail."""
        return self._display.clear()

    def become_due(self) -> List[Message]:
        """The user may want a reason now."""
        self._is_due = bool(self._header)
        return self._show()

    def _show(self) -> List[Message]:
        return self._display.show(self.text, self._header) if self._is_due and self.text else []
