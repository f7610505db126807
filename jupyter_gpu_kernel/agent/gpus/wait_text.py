"""The text in the first cell that waits for GPUs, which says what it waits for."""

from __future__ import annotations

from typing import Optional

from ...wire.kernel_messages.compose import Send, TransientDisplay
from ...wire.messages import Message
from ..system.loop import Loop

SHOW_AFTER = 1.5
"""Seconds that a cell waits before it shows why: its user may want a reason then."""


class WaitText:
    """Shows `text` in the cell of the last call of `move_to`."""

    def __init__(self, loop: Loop, send: Send) -> None:
        self.text = ""
        """What the cell waits for."""
        self._loop = loop
        self._display = TransientDisplay(loop.runtime, send)
        self._header = b""  # of the cell
        self._is_due = False

    @property
    def has_cell(self) -> bool:
        """Whether a cell waits."""
        return bool(self._header)

    def move_to(self, cell: Optional[Message]) -> None:
        """This cell is the first that waits. None: no cell waits."""
        if cell is not None:
            if not self.has_cell:
                self._loop.later(SHOW_AFTER, self._become_due)
            self._header = cell.parts[0]
            self._show()
        elif self.has_cell:
            self._display.clear()
            self._header, self._is_due, self.text = b"", False, ""

    def set_text(self, text: str) -> None:
        """Set what the cell waits for."""
        self.text = text
        self._show()

    def clear(self) -> None:
        """Remove the text, as the cell is about to run or to fail."""
        self._display.clear()

    def _become_due(self) -> None:
        self._is_due = self.has_cell
        self._show()

    def _show(self) -> None:
        if self._is_due and self.text:
            self._display.show(self.text, self._header)
