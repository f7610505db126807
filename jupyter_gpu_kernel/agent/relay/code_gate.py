"""`%gpu code REV` in the first cell: the cell, and those behind it, wait here until the code is pinned.

The commit is the one of the moment when the cell arrives, not of the moment when the kernel gets its GPUs. A cell with
nothing else in it needs no GPU. This module does not know what pinning means.
"""

from __future__ import annotations

import re
from typing import Callable, List, Optional

from ...wire.kernel_messages.answers import Answers
from ...wire.messages import Message

_REQUEST = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*"  # empty lines and comments
    r"%gpu[ \t]+code[ \t]+(?P<revision>[^\n#]+)(?P<rest>.*)",
    re.DOTALL,
)
_NOTHING = re.compile(r"(?:\s|#[^\n]*(?:\n|$))*")
Pin = Callable[[str, str, Callable[[str], None]], Callable[[], None]]
"""Pin(revision, msg_id of the cell, done(problem)) pins the code, and returns a function that cancels that."""


def requested_revision(code: str) -> str:
    """Return REV if the code begins with `%gpu code REV`, at most behind comments; else ""."""
    found = _REQUEST.match(code)
    return found["revision"].strip() if found else ""


def is_only_request(code: str) -> bool:
    """Return whether the code has nothing but that line."""
    found = _REQUEST.match(code)
    return found is not None and _NOTHING.fullmatch(found["rest"]) is not None


class CodeGate:
    """Ask `admit` for every user cell. `pass_on(cell, needs_gpus)` is called for those that waited."""

    def __init__(self, answers: Answers, pin: Pin, pass_on: Callable[[Message, bool], None]) -> None:
        self.cells: List[Message] = []
        """The cells that wait."""
        self._answers = answers
        self._pin = pin
        self._pass_on = pass_on
        self._first = False
        self._cancel: Optional[Callable[[], None]] = None

    def kernel_starting(self, *, fresh: bool) -> None:
        """Another process takes cells; `fresh`: it has had none."""
        self._first = fresh

    def admit(self, cell: Message) -> bool:
        """Return whether this user cell may go on; otherwise it waits here."""
        if not self.cells:
            revision = requested_revision(_code(cell)) if self._first else ""
            self._first = False
            if not revision:
                return True
            self._answers.begin(cell)
            self._cancel = self._pin(revision, cell.msg_id, self._pinned)
        self.cells.append(cell.unparsed())
        return False

    def fail(self, name: str, reason: str) -> bool:
        """End the first cell with this error, as its code is not pinned. Returns whether there was one.

        Those behind it are aborted if it has `stop_on_error`. The next cell is the first one again.
        """
        if not self.cells:
            return False
        if self._cancel is not None:
            self._cancel()
        (first, *others), self.cells, self._first = self.cells, [], True
        self._answers.fail(first, name, reason)
        for cell in others:
            if first.content().get("stop_on_error", True):
                self._answers.abort(cell)
            elif self.admit(cell):
                self._pass_on(cell, True)
        return True

    def _pinned(self, problem: str) -> None:
        if problem:
            self.fail("CodeError", problem)
            return
        cells, self.cells, self._cancel = self.cells, [], None
        for number, cell in enumerate(cells):
            self._pass_on(cell, number > 0 or not is_only_request(_code(cell)))


def _code(cell: Message) -> str:
    code = cell.content().get("code")
    return code if isinstance(code, str) else ""
