"""The story of one kernel: what happened to it, one JSON object a line: {"time", "event", "text", …}.

Written with one `write` a line; what a full disk did not take whole is taken back, and what is torn all the same
`read_story` passes over. Writing never raises: a story that cannot be written must not end a kernel.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

KEEP_DAYS = 30
BURST, PAUSE, LONGEST = 20, 30.0, 1000
"""Lines at once, seconds to the next one, and characters of one, of those that others cause."""


class Story:
    """Appends to the story at `path`, and remembers whether that failed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unwritten = 0

    def tell(self, event: str, text: str, **more: Any) -> Dict[str, Any]:
        """Adds one line; returns it."""
        entry = dict(more, time=time.time(), event=event, text=text)
        line = json.dumps(entry).encode() + b"\n"
        try:
            fd = os.open(str(self.path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                written = os.write(fd, line)
                if written < len(line):  # else the next line would be torn as well
                    self.unwritten += 1
                    os.ftruncate(fd, os.fstat(fd).st_size - written)
            finally:
                os.close(fd)
        except OSError:  # a full disk
            self.unwritten += 1
        return entry


class Limited:
    """Lines that others cause, so that nobody fills the disk: some at once, then one in a while. The next line that is
    told counts those left out."""

    def __init__(self, story: Story, clock: Callable[[], float] = time.monotonic) -> None:
        self._story = story
        self._clock = clock
        self._may = float(BURST)
        self._last = clock()
        self._left_out = 0

    def tell(self, event: str, text: str, **more: Any) -> Dict[str, Any]:
        """Adds one line; returns it. {}: it was left out."""
        now = self._clock()
        self._may = min(BURST, self._may + (now - self._last) / PAUSE)
        self._last = now
        text = "".join(c if c.isprintable() else " " for c in text[:LONGEST])
        if self._may < 1:
            self._left_out += 1
            return {}
        self._may -= 1
        if self._left_out:
            text += f" (and {self._left_out} such lines before)"
            self._left_out = 0
        return self._story.tell(event, text, **more)


def read_story(path: Path, last: int = 0) -> List[Dict[str, Any]]:
    """The story's entries, oldest first; [] if there is none. `last`: of that many bytes at its end."""
    entries: List[Dict[str, Any]] = []
    try:
        lines = path.read_bytes()[-last:].splitlines()
    except FileNotFoundError:
        return entries
    for line in lines:
        try:
            entry = json.loads(line.decode())
        except (ValueError, RecursionError):
            continue  # torn by a full disk, a kill, or `last`
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def forget_old_stories(folder: Path) -> None:
    """Removes stories older than KEEP_DAYS; no folder is no story."""
    limit = time.time() - KEEP_DAYS * 86400
    for entry in folder.glob("*.jsonl"):
        try:
            if entry.stat().st_mtime < limit:
                entry.unlink()
        except FileNotFoundError:
            pass  # another attach was quicker
