"""The demo's output: lines with the time since its start, and between them the kernel's output. Thread-safe."""

from __future__ import annotations

import sys
import threading
import time


class Terminal:
    """Standard output."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._at_line_start = True

    def say(self, who: str, text: str) -> None:
        """Print one or more lines about `who`, a hop or a part of the package."""
        seconds = f"{time.monotonic() - self._began:5.1f} s"
        with self._lock:
            if not self._at_line_start:
                self._write("\n")
            first, *more = text.splitlines() or [""]
            self._write(f"{seconds}  {who:<11} {first}\n")
            for line in more:
                self._write(f"{'':20} {line}\n")

    def check(self, ok: bool, text: str) -> bool:
        """Print the result of a check, and return it."""
        self.say("ok" if ok else "FAILED", text)
        return ok

    def text(self, text: str) -> None:
        """Print the kernel's output, indented."""
        with self._lock:
            for line in text.splitlines(keepends=True):
                self._write(f"{'':20} | {line}" if self._at_line_start else line)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._at_line_start = text.endswith("\n")
