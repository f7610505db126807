"""The messages that wait for a hub, oldest first: in memory, then on disk, up to a cap.

What this module does is decided by the order of its calls alone, except in `overflow` and `reduce`, which use the disk.
So a successor of a killed keeper has the same queue.
"""

from __future__ import annotations

import contextlib
from collections import deque
from pathlib import Path
from typing import Callable, Deque, Iterator, List, Tuple

from ...wire.messages import Message
from ...wire.runtime import Runtime
from ..kernel_settings import KernelSettings
from .reduction import Reduction, notice
from .segments import Segment, Segments, StoredMessage
from .waiting import WaitingMessages

MIB = 1024 * 1024
_PIECE = MIB
"""Bytes moved to disk at once: few, as other messages wait meanwhile, but more than a line each time."""
Report = Callable[[str], object]


class HubQueue:
    """`put` messages, then `overflow`; `take` their bytes. It is true while messages wait."""

    def __init__(self, folder: Path, settings: KernelSettings) -> None:
        """Create an empty queue.

        folder: Where files may be created.
        settings: journal_memory_mib and journal_cap_mib.
        """
        self._memory_limit = int(settings.journal_memory_mib * MIB)
        self.segments = Segments(folder, int(settings.journal_cap_mib * MIB), self._memory_limit)
        self._memory = WaitingMessages()
        self.next: Deque[StoredMessage] = deque()
        """The messages of the segment that was the first one."""

    def __bool__(self) -> bool:
        return bool(self._memory or self.segments.all or self.next)

    @property
    def size(self) -> int:
        """The approximate size of the messages that wait, in bytes."""
        return self._memory.size + self.segments.size + sum(len(one.data) for one in self.next)

    def put(self, message: Message) -> None:
        """Add a message."""
        self._memory.put(message)

    def overflow(self, report: Report) -> Tuple[int, str]:
        """Move the oldest messages to disk, if there are too many in memory. Return their number, and the path of
        their segment."""
        messages: List[StoredMessage] = []
        if self._memory.size <= self._memory_limit:
            return 0, ""
        while self._memory and self._memory.size > self._memory_limit - _PIECE:
            messages.append(self._memory.pop())
        path = self.segments.put(messages)
        if self.segments.full:
            report(f"output that waits for a front end cannot be written to disk: {self.segments.full}")
        return len(messages), path

    def move(self, count: int, path: str) -> None:
        """Do what `overflow` has done in a killed keeper."""
        self.segments.all.append(Segment([self._memory.pop() for _ in range(count)], path))

    def reduce(self, report: Report) -> bool:
        """Leave messages out if there are too many on disk. Return whether something has changed there."""
        return Reduction(self._memory, self.segments, self._memory_limit, report).run()

    def read(self, messages: List[StoredMessage]) -> None:
        """The first segment has these messages, which `take` returns next."""
        self.segments.take()
        self.next.extend(messages)

    def take(self, runtime: Runtime) -> List[bytes]:
        """Remove and return the oldest message, of those that are not in a segment; perhaps with a notice before it."""
        stored = self.next.popleft() if self.next else self._memory.pop()
        cell = self._memory.cells.get(stored.cell)
        if cell is None:  # its beginning was on a disk that lost it
            return [stored.data]
        taken = [stored.data]
        if cell.omitted and stored.begin >= cell.omitted_from:
            taken.insert(0, notice(runtime, cell))
            cell.omitted = 0
        self._memory.release(cell)
        return taken

    def messages(self) -> Iterator[Message]:
        """Yield all messages."""
        yield from (Message.decode(one.data) for one in self.next)
        for segment in self.segments.all:
            with contextlib.suppress(OSError):
                yield from (Message.decode(one.data) for one in segment.read())
        yield from self._memory.messages()

    def clear(self) -> None:
        """Remove all messages."""
        while self.segments.all:
            self.segments.take()
        self.next.clear()
        self._memory = WaitingMessages()
