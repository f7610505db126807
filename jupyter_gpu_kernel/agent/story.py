"""The story of one kernel: the log of what happened to it, one JSON object a line: {"time", "event", "text", …}.

Each line is one `write`. A line that a full disk took in part is removed again; `read_story` skips incomplete lines.
Writing never raises an error: a story that cannot be written must not end a kernel.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, List

KEEP_DAYS = 30
BURST, INTERVAL, MAX_TEXT = 20, 30.0, 1000
"""The rate limit of `Limited`: lines at once, seconds per further line, characters of one line."""


class Story:
    """Appends to the story at `path`, and counts the lines that could not be written."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        """`now()` returns the time in seconds since the epoch."""
        self.path = path
        self.unwritten = 0
        self._now = now

    def tell(self, event: str, text: str, **more: Any) -> Dict[str, Any]:
        """Add one line; return it."""
        entry = dict(more, time=self._now(), event=event, text=text)
        line = json.dumps(entry).encode() + b"\n"
        try:
            fd = os.open(str(self.path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                written = os.write(fd, line)
                if written < len(line):  # else the next line would be damaged, too
                    self.unwritten += 1
                    os.ftruncate(fd, os.fstat(fd).st_size - written)
            finally:
                os.close(fd)
        except OSError:  # a full disk
            self.unwritten += 1
        return entry

    def remove(self) -> None:
        """Remove the story."""
        with contextlib.suppress(OSError):
            self.path.unlink()


class Limited:
    """Limits the rate of lines that other processes cause, so that none of them fills the disk. A line says how many
    before it were left out."""

    def __init__(self, story: Story, clock: Callable[[], float]) -> None:
        """`clock()` returns the time in seconds, of a monotonic clock."""
        self._story = story
        self._clock = clock
        self._tokens = float(BURST)
        self._last = clock()
        self._left_out = 0

    def tell(self, event: str, text: str, **more: Any) -> Dict[str, Any]:
        """Add one line; return it, or {} if it was left out."""
        now = self._clock()
        self._tokens = min(BURST, self._tokens + (now - self._last) / INTERVAL)
        self._last = now
        text = "".join(c if c.isprintable() else " " for c in text[:MAX_TEXT])
        if self._tokens < 1:
            self._left_out += 1
            return {}
        self._tokens -= 1
        if self._left_out:
            text += f" (and {self._left_out} such lines before)"
            self._left_out = 0
        return self._story.tell(event, text, **more)


def read_story(path: Path, last: int = 0) -> List[Dict[str, Any]]:
    """Return the entries, oldest first; [] if there is no story. `last`: read only so many bytes at its end."""
    entries: List[Dict[str, Any]] = []
    try:
        lines = path.read_bytes()[-last:].splitlines()
    except FileNotFoundError:
        return entries
    for line in lines:
        try:
            entry = json.loads(line.decode())
        except (ValueError, RecursionError):
            continue  # incomplete, because of a full disk, a kill, or `last`
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def forget_old_stories(folder: Path, now: float) -> None:
    """Remove stories older than KEEP_DAYS. The folder need not exist."""
    limit = now - KEEP_DAYS * 86400
    for entry in folder.glob("*.jsonl"):
        try:
            if entry.stat().st_mtime < limit:
                entry.unlink()
        except FileNotFoundError:
            pass  # another attach process removed it
