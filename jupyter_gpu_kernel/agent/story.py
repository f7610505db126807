"""The story of one kernel: what happened to it, one JSON object a line: {"time", "event", "text", …}.

Written with one `write` a line; what a full disk did not take whole is taken back, and what is torn all the same
`read_story` passes over. Writing never raises: a story that cannot be written must not end a kernel.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List

KEEP_DAYS = 30


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


def read_story(path: Path, last: int = 0) -> List[Dict[str, Any]]:
    """The story's entries, oldest first; [] if there is none. `last`: of that many bytes at its end."""
    entries: List[Dict[str, Any]] = []
    try:
        lines = path.read_bytes()[-last:].splitlines()
    except FileNotFoundError:
        return entries
    for line in lines:
        try:
            entries.append(json.loads(line.decode()))
        except ValueError:
            continue  # torn by a full disk, a kill, or `last`
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
