"""Text of a peer, made harmless: printable, of bounded length, and without a line end where one line is expected.

Control characters move a terminal's cursor, bidirectional marks reorder a line, and a line of its own looks like ours.
This file does not know who speaks.
"""

from __future__ import annotations

LINE = 2000
"""Characters of one line, unless the caller wants fewer."""


def line(said: object, most: int = LINE) -> str:
    """One line of at most `most` characters; "" for what is no text."""
    if not isinstance(said, str):
        return ""
    text = said[: most + 1]
    if not text.isprintable():
        text = "".join(map(_shown, text))
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(said: str, most: int = 200) -> str:
    """All its lines on one, with single spaces between the words; at most `most` characters, from the beginning."""
    return line(" ".join(said[: 4 * most].split()), most)


def lines(said: object, most: int = 40) -> str:
    """The last `most` lines that say something."""
    if not isinstance(said, str):
        return ""
    last = [one for one in said[-most * LINE :].splitlines() if one.strip()][-most:]
    return "\n".join(map(line, last))


def block(said: object, most: int = 40) -> str:
    """The same, each line behind a mark, so that none can pass for a line of ours; "" if there is nothing."""
    return "\n".join(f"| {one}" for one in lines(said, most).splitlines())


def quoted(who: str, said: object) -> str:
    """`said`, attributed: on the same line where it is one line, else as a block."""
    text = said.strip() if isinstance(said, str) else ""
    if not text:
        return f"{who} does not say why"
    return f"{who} says: {line(text)}" if len(text.splitlines()) == 1 else f"{who} says:\n{block(text)}"


def _shown(one: str) -> str:
    if one.isprintable():
        return one
    return " " if one.isspace() else "?"
