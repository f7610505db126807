"""What the demo prints: lines with the time since its start, and between them what the kernel prints.

Threads may share a terminal. Knows nothing of what is told.
"""

from __future__ import annotations

import sys
import threading
import time


class Terminal:
    """Standard output."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._fresh = True  # the cursor is at the beginning of a line

    def say(self, who: str, text: str) -> None:
        """One line, or several: what `who` (a hop, a part) does."""
        seconds = f"{time.monotonic() - self._began:5.1f} s"
        with self._lock:
            if not self._fresh:
                self._write("\n")
            first, *more = text.splitlines() or [""]
            self._write(f"{seconds}  {who:<11} {first}\n")
            for line in more:
                self._write(f"{'':20} {line}\n")

    def check(self, ok: bool, text: str) -> bool:
        """A line for something that must hold; returns `ok`."""
        self.say("held" if ok else "NOT HELD", text)
        return ok

    def text(self, text: str) -> None:
        """What the kernel printed, indented."""
        with self._lock:
            for line in text.splitlines(keepends=True):
                self._write(f"{'':20} | {line}" if self._fresh else line)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._fresh = text.endswith("\n")
