"""Text that waits: what a carriage return overwrites is left out, so that an hour of a progress bar is one line.

Only what no front end would show is left out: terminals and JupyterLab write what follows a `\\r` over what is there,
so a shorter text covers only a part. Lines with other control characters stay as they are.
"""

from __future__ import annotations

import re
from typing import List

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RESETS = ("\x1b[0m", "\x1b[m")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def collapse(line: str, start: bool = True) -> str:
    """Return a line that looks the same as this one (without its newline). `start`: it begins at the left margin."""
    parts = line.split("\r")
    if len(parts) < 2:
        return line
    bare = [_COLOUR.sub("", part) for part in parts]
    if any(_CONTROL.search(part) for part in bare):
        return line
    neutral = _neutral(parts)
    kept = [parts[-1]]
    long, wide = len(parts[-1]), len(bare[-1])  # in characters for JupyterLab, in columns for terminals
    for at in range(len(parts) - 2, -1, -1):
        covered = len(parts[at]) <= long and len(bare[at]) <= wide
        if not covered or not neutral[at] or (at == 0 and not start):
            kept.append(parts[at])
            long, wide = max(long, len(parts[at])), max(wide, len(bare[at]))
    return "\r".join(reversed(kept))


def _neutral(parts: List[str]) -> List[bool]:
    """Return which parts do not change the colour."""
    neutral = []
    colour = "?"
    for part in parts:
        before = colour
        for code in _COLOUR.findall(part):
            colour = "" if code in _RESETS else colour + code
        neutral.append(colour == before)
    return neutral


class TerminalText:
    """Text that grows by `append`. `size` is its approximate size in bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._lines: List[str] = []  # whole lines, in larger pieces
        self._last = ""  # the line that is being written
        self._start = False  # whether it is known to begin at the left margin

    def __str__(self) -> str:
        return "".join(self._lines) + self._last

    def append(self, text: str) -> None:
        """Add text at the end."""
        self.size -= _size(self._last)
        text = self._last + text
        if "\r" in text:
            text = self._collapsed(text)
        lines, newline, self._last = text.rpartition("\n")
        if newline:
            self._start = True
            self._lines.append(lines + newline)
            self.size += _size(self._lines[-1])
        self.size += _size(self._last)

    def _collapsed(self, text: str) -> str:
        first, *rest = text.split("\n")
        return "\n".join([collapse(first, self._start), *map(collapse, rest)])


def _size(text: str) -> int:
    return len(text) if text.isascii() else 3 * len(text)
