"""The gate at which a kernel's user cells wait until it has its GPUs, and the standby of a kernel with several hosts.

A kernel on standby gets GPUs, but runs no user cell until the hub confirms it: the hub waits on several hosts at once,
and only one of them may run the cells. The hub renews the standby of a kernel that waits. If it does not, because the
hub or its link is gone, the kernel ends, as it has run nothing yet. This module does not know GPUs.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from ...wire.answers import Answers
from ...wire.compose import Send, TransientDisplay, is_user_cell
from ...wire.messages import Message
from ...wire.runtime import Runtime
from ..loop import Loop, Timer

CELL, NOW = "cell", "now"
"""The values of the setting `standby`: GPUs are taken when a cell waits, or at once (a reservation). "": no standby."""
LAPSES_AFTER = 45.0
"""Seconds without a renewal after which a kernel that waits on standby ends."""
_LAPSED = "its hub has not renewed the wait for GPUs on several hosts"


class Gate:
    """The gate at which user cells wait, in order, until the kernel has its GPUs. All other requests pass.

    Ask `admit` for every execute_request; then `open` the gate, or `fail_first` when the GPUs cannot be had. The first
    waiting cell shows what it waits for.
    """

    def __init__(
        self,
        runtime: Runtime,
        send: Send,
        answers: Answers,
        release: Callable[[Message], None],
        *,
        is_open: bool,
    ) -> None:
        """`release` sends a cell to the kernel."""
        self.is_open = is_open
        self._answers = answers
        self._release = release
        self._cells: Deque[Message] = deque()
        self._display = TransientDisplay(runtime, send)
        self.text = ""
        """What the first waiting cell waits for."""
        self._text_visible = False

    @property
    def cells(self) -> List[Message]:
        """The cells that wait."""
        return list(self._cells)

    def close(self) -> None:
        """Let user cells wait from now on, as the kernel has no GPUs any more."""
        self.is_open = False

    def admit(self, message: Message) -> bool:
        """Return whether this request may go to the kernel; otherwise it is kept here."""
        if self.is_open or not is_user_cell(message):
            return True
        self._cells.append(message.unparsed())
        if len(self._cells) == 1:
            self._answers.begin(message)
        return False

    def set_text(self, text: str) -> None:
        """Set what the first waiting cell waits for. The text is displayed after `show_text`."""
        if text != self.text:
            self.text = text
            if self._text_visible:
                self._display_text()

    def show_text(self) -> None:
        """Display the text from now on: the first cell has waited long enough for its user to want a reason."""
        if self._cells and not self._text_visible:
            self._text_visible = True
            self._display_text()

    def open(self) -> None:
        """Send the waiting cells to the kernel, in order, as it has its GPUs."""
        self.is_open = True
        if self._cells:
            self._clear_text()
        self.text = ""
        while self._cells:
            self._release(self._cells.popleft())

    def fail_first(self, name: str, reason: str) -> None:
        """End the first waiting cell with an error. Those behind it are aborted if it has `stop_on_error`."""
        if not self._cells:
            return
        first = self._cells.popleft()
        behind: List[Message] = []
        if first.content().get("stop_on_error", True):
            behind = list(self._cells)
            self._cells.clear()
        self._clear_text()
        self._answers.fail(first, name, reason)  # a cell that waited for the end of these may be admitted now
        for cell in behind:
            self._answers.abort(cell)
        if self._cells:
            self._answers.begin(self._cells[0])
            self.show_text()

    def _display_text(self) -> None:
        if self.text:
            self._display.show(self.text, self._cells[0].parts[0])

    def _clear_text(self) -> None:
        self._text_visible = False
        self._display.clear()


class GpuStandby:
    """`active` until `confirm`. Call `begin` when the kernel waits, `end` when it does not, `renew` for the hub."""

    def __init__(self, loop: Loop, mode: str, on_lapse: Callable[[str], None]) -> None:
        self.active = mode in (CELL, NOW)
        self.is_reservation = mode == NOW
        self.elsewhere = ""
        """What the hub tells of the other hosts, for the waiting cell."""
        self.problem = ""
        """Why the GPUs cannot be had, at the last attempt."""
        self._loop = loop
        self._on_lapse = on_lapse
        self._timer: Optional[Timer] = None

    def begin(self) -> None:
        """The kernel waits: from now on the hub has to renew the standby."""
        if self.active and self._timer is None:
            self._timer = self._loop.later(LAPSES_AFTER, lambda: self._on_lapse(_LAPSED))

    def renew(self) -> None:
        """The hub is there."""
        if self._timer is not None:
            self.end()
            self.begin()

    def end(self) -> None:
        """The kernel does not wait any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def confirm(self) -> None:
        """The kernel is an ordinary one from now on."""
        self.end()
        self.active = self.is_reservation = False

    def status(self, waiting_text: str) -> Dict[str, Any]:
        """Return what the hub needs to know; {} if there is no standby."""
        if not self.active:
            return {}
        return {
            "standby": True,
            "reservation": self.is_reservation,
            "waiting_text": waiting_text,
            "problem": self.problem,
        }
