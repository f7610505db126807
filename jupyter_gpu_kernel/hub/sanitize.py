"""Makes text of another machine harmless where it is shown: printable, of bounded length, and one line where one is
expected. Control characters move a terminal's cursor, bidirectional marks reorder a line, and an extra line looks like
ours.
"""

from __future__ import annotations

import re
from typing import Any

from ..wire.texts import one_line as one_line
from ..wire.texts import printable, shortened

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
MAX_LINE = 2000
"""Characters of one line, unless the caller wants fewer."""


def line(value: object, most: int = MAX_LINE) -> str:
    """Return one line of at most `most` characters; "" for a value that is not text."""
    if not isinstance(value, str):
        return ""
    return shortened(printable(value[: most + 1]).replace("\n", " "), most)


def lines(value: object, most: int = 40) -> str:
    """Return the last `most` lines that are not blank."""
    if not isinstance(value, str):
        return ""
    last = [one for one in value[-most * MAX_LINE :].splitlines() if one.strip()][-most:]
    return "\n".join(map(line, last))


def block(value: object, most: int = 40) -> str:
    """Return the last `most` lines that are not blank, each with a mark, so that none can pass for a line of ours."""
    return "\n".join(f"| {one}" for one in lines(value, most).splitlines())


def quoted(speaker: str, value: object) -> str:
    """Return the text with its speaker: on the same line if it is one line, else as a block."""
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        return f"{speaker} gives no reason"
    return (
        f"{speaker} says: {line(text)}" if len(text.splitlines()) == 1 else f"{speaker} says:\n{block(text)}"
    )


def is_id(value: Any) -> bool:
    """Whether this is valid as the name of a kernel, and so of a file."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None
