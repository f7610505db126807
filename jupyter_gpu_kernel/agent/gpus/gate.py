"""The gate at which a kernel's user cells wait until it has its GPUs. This module does not know GPUs."""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, List

from ...wire.kernel_messages.answers import Answers
from ...wire.kernel_messages.compose import Send, TransientDisplay, is_user_cell
from ...wire.messages import Message
from ...wire.runtime import Runtime


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
