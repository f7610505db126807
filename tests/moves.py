"""What a buffer costs, counted: bytes that are moved in memory, lines of Python that are executed, bytes that are read
from files and written. Nothing is timed.

moves = Moves()
buffer += piece; moves.note(buffer, first=total - len(buffer))
moves.bytes"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any


class Moves:
    """`bytes`: how many bytes of a bytearray were moved to another place in memory, each time it was looked at."""

    def __init__(self) -> None:
        self.bytes = 0
        self._base: int | None = None

    def note(self, buffer: bytearray, first: int) -> None:
        """Look at it. `first`: which byte of the stream is its first one; a byte that was not moved has its place."""
        if not buffer:
            self._base = None
            return
        base = ctypes.addressof(ctypes.c_char.from_buffer(buffer)) - first
        if self._base not in (None, base):
            self.bytes += len(buffer)
        self._base = base


def lines(function: Callable[..., object], *arguments: Any) -> int:
    """How many lines of Python a call executes, in all functions of this thread but those of the garbage collection."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def file_bytes() -> int:
    """How many bytes this thread has read from files and written to them so far. Linux only."""
    facts = dict(line.split(": ") for line in Path("/proc/thread-self/io").read_text().splitlines())
    return int(facts["rchar"]) + int(facts["wchar"])
