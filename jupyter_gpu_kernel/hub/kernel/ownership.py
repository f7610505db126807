"""Which front end owns a kernel, and what others may ask: not for its interrupt or end. A cell takes the kernel over.

It knows messages and front ends, not the link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...wire.compose import is_user_cell
from ...wire.messages import Message
from ..front_end.front_ends import FrontEnd, FrontEnds
from .placeholder import Placeholder
from .requests import owners_only, type_of


class Ownership:
    """`may_ask` before every request. `taken`: by whom, if another computer has the kernel now."""

    def __init__(
        self,
        front_ends: FrontEnds,
        placeholder: Placeholder,
        event: Callable[[], dict[str, Any]],
        taken_over: Callable[[FrontEnd], None],
        taken_back: Callable[[], None],
    ) -> None:
        """`event()`: what faces hear of the kernel; `taken_over(by)` another front end's, `taken_back()` from afar."""
        self.taken = ""
        self._front_ends = front_ends
        self._placeholder = placeholder
        self._event = event
        self._taken_over = taken_over
        self._taken_back = taken_back

    def may_ask(self, front: FrontEnd, message: Message) -> bool:
        """Whether this goes on; if not, it has its answer."""
        if front is self._front_ends.owner and not self.taken:
            return True
        if is_user_cell(message):
            self._take(front, message)
            return True
        if owners_only(message):
            self._refuse(front, message)
        elif self.taken:
            self._placeholder.answers(message)
        else:
            return True
        return False

    def lost(self, by: str, waiting: list[Message]) -> None:
        """Another computer has the kernel now. `waiting`: what was asked meanwhile, and not for us to ask."""
        self.taken = by
        for message in waiting:
            if owners_only(message):
                self._placeholder.refuses(message, by)
            elif type_of(message) == "kernel_info_request":
                self._placeholder.answers(message)

    def _refuse(self, front: FrontEnd, message: Message) -> None:
        has = self.taken or f"{self._front_ends.owners_label} has this kernel now"
        self._placeholder.refuses(message, f"{has}: run a cell to take it over")
        if type_of(message) == "shutdown_request":
            front.tell({**self._event(), "state": "ended", "asked": "shutdown", "returncode": 0})

    def _take(self, front: FrontEnd, message: Message) -> None:
        if self.taken:
            self.taken = ""  # the cells behind this one wait with it
            self._taken_back()
        else:
            text = f"You have this kernel now; {self._front_ends.owners_label} still sees its output."
            self._placeholder.announces(message, text)
            self._taken_over(front)
        self._front_ends.owner = front
