r"""Which waiting output is made obsolete by later output: superseded messages, and overwritten text.

A message is superseded by an update of the same display, or of the same state of a widget. Text is overwritten by what
follows a carriage return, so that an hour of a progress bar is one line. Only what no front end would show is left out:
terminals and JupyterLab write what follows a `\r` over what is there, so a shorter text covers only a part. Lines with
other control characters stay as they are.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional

from ...wire.messages import Message, content_of

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RESETS = ("\x1b[0m", "\x1b[m")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Key(NamedTuple):
    """What a message sets. A later message with the same key supersedes it.

    `owner` is the id of a widget's comm, or of a display; `is_widget` says which.
    """

    is_widget: bool
    owner: str
    properties: Any = None


class Newest:
    """The newest message of each key, by its serial number."""

    def __init__(self) -> None:
        self._serials: Dict[Any, Dict[Key, int]] = {}

    def add(self, key: Key, serial: int) -> Optional[int]:
        """Add a message; return the serial number of the one that it supersedes."""
        serials = self._serials.setdefault(key[:2], {})
        superseded = serials.get(key)
        serials[key] = serial
        return superseded

    def remove(self, key: Key, serial: int) -> None:
        """This message no longer waits."""
        serials = self._serials.get(key[:2], {})
        if serials.get(key) == serial:
            del serials[key]
            if not serials:
                del self._serials[key[:2]]

    def remove_widget(self, comm_id: str) -> None:
        """Later messages of this widget supersede none of those before."""
        self._serials.pop((True, comm_id), None)


def key_of(message: Message, msg_type: str) -> Optional[Key]:
    """Return what this message sets, if it can be superseded; it can change places with the cell's text then."""
    if msg_type == "update_display_data":
        return Key(False, str(object_at(content_of(message), "transient").get("display_id")))
    if msg_type != "comm_msg":
        return None
    content = content_of(message)
    data = object_at(content, "data")
    state = data.get("state")
    if data.get("method") != "update" or not isinstance(state, dict) or "msg_id" in state:
        return None  # with msg_id a widget begins or ends to capture the cell's output
    return Key(
        True, str(content.get("comm_id")), (tuple(sorted(state)), json.dumps(data.get("buffer_paths")))
    )


def object_at(content: Dict[str, Any], key: str) -> Dict[str, Any]:
    """Return the JSON object at this key; {} if there is none."""
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def collapse(line: str, start: bool = True) -> str:
    """Return a shorter line that looks like `line`, which has no newline. `start`: it begins at the left margin."""
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
