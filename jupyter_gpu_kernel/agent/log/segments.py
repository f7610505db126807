"""Segments of the queue: messages that wait for the hub and have no room in memory, on disk.

The queue is first in, first out. It has many files, so that messages that were read free their space and the middle can
be removed. Messages that the disk does not take stay in memory, and the capacity is smaller.

A file is never changed, and is removed only when no checkpoint of the log needs it. Its name depends only on what has
happened to the queue: the successor of a killed keeper, which repeats that, writes the same file once more. This module
does not know what the messages mean.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
from collections import deque
from pathlib import Path
from typing import Deque, Dict, List, NamedTuple, Sequence, Set, Tuple

from ...wire.files import replace_file

_MERGED = 256 * 1024
"""The size in bytes up to which a segment is merged with the one before."""


class StoredMessage(NamedTuple):
    """An encoded message. `kind` and `cell` are numbers of `waiting.py`; `begin` and `end` are positions in the text
    that the cell has printed."""

    kind: int
    cell: int
    begin: int
    end: int
    data: bytes


class Segment:
    """Some messages, in a file; without a path, in memory.

    texts: The text of each cell in this segment: its size in bytes, where it begins, and where it ends.
    largest: The size of the largest message of each kind.
    """

    def __init__(self, messages: Sequence[StoredMessage], path: str) -> None:
        self.path = path
        self.texts: Dict[int, Tuple[int, int, int]] = {}
        self.largest: Dict[int, int] = {}
        self.size = sum(len(message.data) for message in messages)
        self._messages = [] if path else list(messages)
        for kind, cell, begin, end, data in messages:
            self.largest[kind] = max(self.largest.get(kind, 0), len(data))
            if begin < end:
                size, first, _ = self.texts.get(cell, (0, begin, end))
                self.texts[cell] = (size + len(data), first, end)

    def read(self) -> List[StoredMessage]:
        """Return the messages. Raises OSError if the file cannot be read."""
        try:
            return list(pickle.loads(Path(self.path).read_bytes())) if self.path else self._messages
        except OSError:
            raise
        except Exception as error:  # a damaged pickle raises any
            raise OSError(f"{self.path} is damaged: {error}") from None


class Segments:
    """A queue of segments: `put` at the end, `take` from the front, `replace` in the middle.

    problems: What went wrong with the disk, as texts for the user.
    """

    def __init__(self, folder: Path, cap: int, spare: int) -> None:
        """Create an empty queue.

        folder: Where files may be created.
        cap: The limit for the size on disk in bytes, if that is not more than a twentieth of the free space.
        spare: The limit for the size in memory if the disk takes nothing.
        """
        self.all: Deque[Segment] = deque()
        self.problems: Set[str] = set()
        self._is_full = False  # whether the disk did not take the last segment
        # The files that the last checkpoint of the log needs, and the next one does not:
        self._unused: List[Segment] = []
        self._number = 0  # of the next file
        self._folder = folder
        self._cap = cap
        self._spare = spare

    @property
    def size(self) -> int:
        """The size of all messages in bytes."""
        return sum(segment.size for segment in self.all)

    @property
    def capacity(self) -> int:
        """The size that all messages should have at most, in bytes."""
        used = sum(segment.size for segment in self.all if segment.path)
        if self._is_full:
            return min(self._cap, used + self._spare)
        return min(self._cap, max(self._spare, (_free(self._folder) + used) // 20))

    @property
    def unused_size(self) -> int:
        """The size of the files that `remove_unused` would remove, in bytes."""
        return sum(segment.size for segment in self._unused)

    def put(self, messages: Sequence[StoredMessage]) -> None:
        """Add messages as one segment. This never fails: what the disk does not take stays in memory."""
        self.all.append(self._written(messages))

    def take(self) -> List[StoredMessage]:
        """Remove the first segment and return its messages; none if they cannot be read."""
        self._unused.append(self.all.popleft())
        try:
            return self._unused[-1].read()
        except OSError as error:
            self.problems.add(
                f"a part of the output that waits for a front end cannot be read from disk: {error}"
            )
            return []

    def replace(self, number: int, messages: List[StoredMessage]) -> bool:
        """Put messages in place of those of a segment. Return whether the segment before has them now, and this segment
        is gone. Raises OSError."""
        size = sum(len(message.data) for message in messages)
        merges = number > 0 and self.all[number - 1].size + size < _MERGED
        if merges:
            messages = self.all[number - 1].read() + messages
        self._unused.append(self.all[number])
        self.all[number] = self._written(messages)
        if merges:
            self._unused.append(self.all[number - 1])
            del self.all[number - 1]
        return merges

    def clear(self) -> None:
        """Remove all segments."""
        self._unused += self.all
        self.all.clear()

    def remove_unused(self) -> None:
        """Remove the files whose messages nobody needs: a checkpoint of the log was written, or no successor can read
        the log."""
        unused, self._unused = self._unused, []
        for segment in unused:
            if segment.path:
                with contextlib.suppress(OSError):
                    Path(segment.path).unlink()

    def _written(self, messages: Sequence[StoredMessage]) -> Segment:
        """Return a segment with these messages: in a file, if the disk takes it."""
        self._number += 1
        path = str(self._folder / f"output-{self._number}")
        try:
            replace_file(path, pickle.dumps(list(messages), pickle.HIGHEST_PROTOCOL))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            self.problems.add(f"output that waits for a front end cannot be written to disk: {reason}")
            path = ""
        self._is_full = not path
        return Segment(messages, path)


def _free(folder: Path) -> int:
    """Return how many bytes we may still write in this folder."""
    try:
        return shutil.disk_usage(str(folder)).free
    except OSError:
        return 0
