"""Messages on disk: those that wait for the hub and have no room in memory, in files that a successor finds.

First in, first out, in many files, so that messages that were read free their space and the middle can be removed. What
the disk does not take stays in memory, and the capacity is smaller. A file is never changed, and is removed only when
the log does not need it any more. This module does not know what the messages mean.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections import Counter, deque
from pathlib import Path
from typing import Deque, Dict, List, NamedTuple, Sequence, Tuple

PREFIX = "output-"
"""The prefix of the names of these files."""
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

    bytes_of: The size of the messages of each kind and cell.
    spans: Where the text of each cell in this segment begins and ends.
    largest: The size of the largest message of each kind.
    """

    def __init__(self, messages: Sequence[StoredMessage], path: str) -> None:
        self.path = path
        self.bytes_of: Dict[int, Counter[int]] = {}
        self.spans: Dict[int, Tuple[int, int]] = {}
        self.largest: Dict[int, int] = {}
        self._messages = [] if path else list(messages)
        for message in messages:
            self.bytes_of.setdefault(message.kind, Counter())[message.cell] += len(message.data)
            begin, end = self.spans.get(message.cell, (message.begin, message.end))
            self.spans[message.cell] = (min(begin, message.begin), max(end, message.end))
            self.largest[message.kind] = max(self.largest.get(message.kind, 0), len(message.data))
        self.size = sum(len(message.data) for message in messages)

    def read(self) -> List[StoredMessage]:
        """Return the messages. Raises OSError."""
        return list(pickle.loads(Path(self.path).read_bytes())) if self.path else self._messages


class Segments:
    """A queue of segments: `put` at the end, `take` from the front, `replace` in the middle."""

    def __init__(self, folder: Path, cap: int, spare: int) -> None:
        """Create an empty queue.

        folder: Where files may be created.
        cap: The limit for the size on disk in bytes, if that is not more than a twentieth of the free space.
        spare: The limit for the size in memory if the disk takes nothing.
        """
        self.all: Deque[Segment] = deque()
        self.full = ""  # why the disk took no more at the last attempt
        self._unused: List[str] = []  # files to be removed when the log's file has been written
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
        if self.full:
            return min(self._cap, used + self._spare)
        return min(self._cap, max(self._spare, (_free(self._folder) + used) // 20))

    def put(self, messages: Sequence[StoredMessage]) -> str:
        """Add messages as one segment; return its path. This never fails: what the disk does not take stays in
        memory."""
        self.full = ""
        self.all.append(self._written(messages))
        return self.all[-1].path

    def take(self) -> None:
        """Remove the first segment, whose messages were read."""
        self._discard(self.all.popleft())

    def replace(self, number: int, messages: List[StoredMessage]) -> bool:
        """Put messages in place of those of a segment. Return whether the segment before has them now, and this segment
        is gone. Raises OSError."""
        size = sum(len(message.data) for message in messages)
        merges = number > 0 and self.all[number - 1].size + size < _MERGED
        if merges:
            messages = self.all[number - 1].read() + messages
        segment = self._written(messages)
        self._discard(self.all[number])
        self.all[number] = segment
        if merges:
            self._discard(self.all[number - 1])
            del self.all[number - 1]
        return merges

    def remove_unused(self) -> None:
        """Remove the files whose messages nobody needs, also not a successor."""
        unused, self._unused = self._unused, []
        for path in unused:
            Path(path).unlink(missing_ok=True)

    def _discard(self, segment: Segment) -> None:
        if segment.path:
            self._unused.append(segment.path)

    def _written(self, messages: Sequence[StoredMessage]) -> Segment:
        """Return a segment with these messages: in a file, if the disk takes it."""
        path = ""
        try:
            fd, path = tempfile.mkstemp(prefix=PREFIX, dir=str(self._folder))
            with open(fd, "wb") as file:
                pickle.dump(list(messages), file, pickle.HIGHEST_PROTOCOL)
        except OSError as error:
            self.full = error.strerror or type(error).__name__
            self._unused += [path] if path else []
            path = ""
        return Segment(messages, path)


def _free(folder: Path) -> int:
    """Return how many bytes we may still write in this folder."""
    try:
        return shutil.disk_usage(str(folder)).free
    except OSError:
        return 0
