"""`%gpu code REV` in the first cell of a process, which runs when the code of the revision REV is pinned.

The commit is the one of the moment when the cell arrives, not of the moment when the kernel gets its GPUs. A cell with
nothing else in it needs no GPU. This module does not know what pinning means.
"""

from __future__ import annotations

import re

_REQUEST = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*"  # empty lines and comments
    r"%gpu[ \t]+code[ \t]+(?P<revision>[^\n#]+)(?P<rest>.*)",
    re.DOTALL,
)
_NOTHING = re.compile(r"(?:\s|#[^\n]*(?:\n|$))*")


def requested_revision(code: object) -> str:
    """Return REV if the code begins with `%gpu code REV`, at most behind comments; else ""."""
    found = _REQUEST.match(code) if isinstance(code, str) else None
    return found["revision"].strip() if found else ""


def is_only_request(code: object) -> bool:
    """Return whether the code has nothing but the line `%gpu code REV`."""
    found = _REQUEST.match(code) if isinstance(code, str) else None
    return found is not None and _NOTHING.fullmatch(found["rest"]) is not None
