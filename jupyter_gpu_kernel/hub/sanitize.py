"""Makes data of another machine harmless: text that is shown, and JSON.

Text becomes printable, of bounded length, and one line where one is expected: control characters move a terminal's
cursor, bidirectional marks reorder a line, and an extra line looks like ours.

JSON is checked by shapes. A shape is a function that returns the checked value, of known type and bounded size. A wrong
container or identifier raises Malformed. A leaf of a wrong type becomes unknown (None, "", False), as it may come from
another version. Unknown keys are kept, but made small and harmless. This module knows no message, and not where its
data comes from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import Any

from ..wire.texts import one_line as one_line
from ..wire.texts import printable, shortened

Shape = Callable[[Any], Any]

MAX_UNKNOWN_KEYS = 20
"""Unknown keys of an object that are kept."""
_OURS = ("error", "hop", "link", "kernel_id", "remedy", "late", "slurm", "away_since")
"""Keys that only the hub itself sets."""
_MAX_INTEGER = 2**53
"""Larger integers are not exact in every program that reads JSON."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MESSAGE_ID = re.compile(r"[ -~]{1,256}")
_WORD = re.compile(r"[a-z_]{1,32}")
MAX_LINE = 2000
"""Characters of one line, unless the caller wants fewer."""


class Malformed(Exception):
    """The value has not the expected shape; the text says where."""


# -------------------------------------------------------------------------------- text


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


# -------------------------------------------------------------------------------- JSON


def is_id(value: Any) -> bool:
    """Whether this is valid as the name of a kernel, and so of a file."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def fields(*required: str, **shapes: Shape) -> Shape:
    """Return the shape of an object with these keys, of which only `required` must exist, and a few unknown keys."""

    def checked(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Malformed("an object was expected")
        missing = [key for key in required if key not in value]
        if missing:
            raise Malformed(f"{missing[0]} is missing")
        known = {key: _at(key, shape, value[key]) for key, shape in shapes.items() if key in value}
        return {**unknown_keys(value, shapes), **known}

    return checked


def rows(shape: Shape, most: int) -> Shape:
    """Return the shape of a list with at most `most` values."""

    def checked(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Malformed("a list was expected")
        if len(value) > most:
            raise Malformed(f"the list has {len(value)} values, and at most {most} are allowed")
        return [shape(one) for one in value]

    return checked


def unknown_keys(value: dict[str, Any], known: Container[str]) -> dict[str, Any]:
    """Return at most MAX_UNKNOWN_KEYS unknown keys, truncated and sanitized."""
    more = [key for key in value if key not in known and key not in _OURS][:MAX_UNKNOWN_KEYS]
    return {line(key, 100): plain(value[key]) for key in more}


def _at(key: str, shape: Shape, value: Any) -> Any:
    try:
        return shape(value)
    except Malformed as error:
        raise Malformed(f"{key}: {error}") from None


def or_none(shape: Shape) -> Shape:
    """Return a shape that permits null."""
    return lambda value: None if value is None else shape(value)


def text(most: int = MAX_LINE) -> Shape:
    """Return the shape of one line of text."""
    return lambda value: line(value, most)


def word(value: Any) -> str:
    """Check a word of lower-case letters; "" if it is none."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def one_of(*words: str) -> Shape:
    """Return the shape of one of these words."""

    def checked(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise Malformed(f"one of {', '.join(words)} was expected")
        return value

    return checked


def number(least: float = -_MAX_INTEGER, most: float = _MAX_INTEGER) -> Shape:
    """Return the shape of a number in a range."""

    def checked(value: Any) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            return None  # also for NaN
        return value

    return checked


def flag(value: Any) -> bool:
    """Check a boolean."""
    return value is True


def kernel_id(value: Any) -> str:
    """Return a kernel's id. Raises Malformed if it is none."""
    if not is_id(value):
        raise Malformed("a kernel's id was expected")
    return str(value)


def message_id(value: Any) -> str:
    """Return a message's id. Raises Malformed if it is none."""
    if not isinstance(value, str) or not _MESSAGE_ID.fullmatch(value):
        raise Malformed("a message's id was expected")
    return value


def plain(value: Any, depth: int = 3) -> Any:
    """Return a small copy of any JSON value: deeper or longer parts are cut off."""
    if isinstance(value, dict) and depth:
        return {line(key, 100): plain(value[key], depth - 1) for key in list(value)[:100]}
    if isinstance(value, list) and depth:
        return [plain(one, depth - 1) for one in value[:100]]
    if isinstance(value, str):
        return line(value)
    return value if isinstance(value, bool) else count(value)


count = number()
