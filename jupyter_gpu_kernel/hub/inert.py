"""Text that another machine sent, made safe to show: one line, no control characters, of limited length."""

from __future__ import annotations


def one_line(text: str, most: int = 200) -> str:
    """`text` on one line; at most `most` characters are kept, those from the beginning.

    Whatever is not printable becomes "?": escape sequences of terminals, and characters that change the direction of
    writing.
    """
    words = " ".join(text[: 4 * most].split())
    shown = "".join(one if one.isprintable() else "?" for one in words)
    return shown if len(shown) <= most else shown[: most - 1] + "…"
