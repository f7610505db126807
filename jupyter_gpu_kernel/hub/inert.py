"""Makes text of another machine harmless: printable, of bounded length, and on one line where one is expected.

Control characters move a terminal's cursor, bidirectional marks reorder a line, and an extra line looks like ours. This
module does not know where the text comes from.
"""

from __future__ import annotations

MAX_LINE = 2000
"""Characters of one line, unless the caller wants fewer."""


def line(value: object, most: int = MAX_LINE) -> str:
    """Return one line of at most `most` characters; "" for a value that is not text."""
    if not isinstance(value, str):
        return ""
    text = value[: most + 1]
    if not text.isprintable():
        text = "".join(map(_printable, text))
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(text: str, most: int = 200) -> str:
    """Join all lines into one, with single spaces between the words; at most `most` characters."""
    return line(" ".join(text[: 4 * most].split()), most)


def lines(value: object, most: int = 40) -> str:
    """Return the last `most` lines that are not blank."""
    if not isinstance(value, str):
        return ""
    last = [one for one in value[-most * MAX_LINE :].splitlines() if one.strip()][-most:]
    return "\n".join(map(line, last))


def block(value: object, most: int = 40) -> str:
    """Return the same with a mark before each line, so that none can pass for ours; "" if there is none."""
    return "\n".join(f"| {one}" for one in lines(value, most).splitlines())


def quoted(speaker: str, value: object) -> str:
    """Return the text with its speaker: on the same line if it is one line, else as a block."""
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        return f"{speaker} gives no reason"
    return (
        f"{speaker} says: {line(text)}" if len(text.splitlines()) == 1 else f"{speaker} says:\n{block(text)}"
    )


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else "?"
