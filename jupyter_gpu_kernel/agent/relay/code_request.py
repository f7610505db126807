"""`%gpu code REV` in the first cell of a process, which runs when the code of the revision REV is pinned.

The commit is the one of the moment when the cell arrives, not of the moment when the kernel gets its GPUs. A cell with
nothing else in it needs no GPU. This module does not know what pinning means.
"""

from __future__ import annotations

import re
from typing import Callable, Optional

from ...wire.messages import Message

_REQUEST = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*"  # empty lines and comments
    r"%gpu[ \t]+code[ \t]+(?P<revision>[^\n#]+)(?P<rest>.*)",
    re.DOTALL,
)
_NOTHING = re.compile(r"(?:\s|#[^\n]*(?:\n|$))*")
OnPinned = Callable[[str], None]
"""OnPinned(problem) is called when the code is pinned; `problem` says why it cannot be pinned, "" if it is."""
Pin = Callable[[str, str, OnPinned], Callable[[], None]]
"""Pin(revision, msg_id of the cell, on_pinned) pins the code, and returns a function that cancels that."""


def requested_revision(code: object) -> str:
    """Return REV if the code begins with `%gpu code REV`, at most behind comments; else ""."""
    found = _REQUEST.match(code) if isinstance(code, str) else None
    return found["revision"].strip() if found else ""


def is_only_request(code: object) -> bool:
    """Return whether the code has nothing but the line `%gpu code REV`."""
    found = _REQUEST.match(code) if isinstance(code, str) else None
    return found is not None and _NOTHING.fullmatch(found["rest"]) is not None


class CodePin:
    """Pins the code for one cell at a time."""

    def __init__(self, pin: Pin, on_pinned: OnPinned) -> None:
        self._pin = pin
        self._on_pinned = on_pinned
        self._cell: Optional[Message] = None
        self._cancel: Callable[[], None] = lambda: None

    def want(self, cell: Optional[Message]) -> None:
        """Pin the code that this cell names, and no other code. None: no cell waits for code."""
        if cell == self._cell:
            return
        self._cancel()
        self._cell = cell
        revision = "" if cell is None else requested_revision(cell.content().get("code"))
        if cell is not None and revision:
            self._cancel = self._pin(revision, cell.msg_id, self._on_pinned)
