"""The messages that wait for a hub, oldest first: in memory, then on disk, up to a cap.

What `put`, `take` and `clear` do is decided by the order of the calls alone. So a successor of a killed keeper, which
repeats them, has the same queue. `reduce` also depends on the free space of the disk, so a checkpoint of the log
follows it.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Deque, List, Set

from ...wire.messages import Message
from ...wire.runtime import Runtime
from ..kernel_settings import KernelSettings
from .reduction import Reduction, notice
from .segments import Segments, StoredMessage
from .waiting import WaitingMessages

MIB = 1024 * 1024
_PIECE = MIB
"""Bytes moved to disk at once: few, as other messages wait meanwhile, but more than a line each time."""


class HubQueue:
    """`put` messages, then `reduce`; `take` their bytes. The queue is true while messages wait."""

    def __init__(self, folder: Path, settings: KernelSettings) -> None:
        """Create an empty queue.

        folder: Where files may be created.
        settings: journal_memory_mib and journal_cap_mib.
        """
        self._memory_limit = int(settings.journal_memory_mib * MIB)
        self.segments = Segments(folder, int(settings.journal_cap_mib * MIB), self._memory_limit)
        self._memory = WaitingMessages()
        self._next: Deque[StoredMessage] = deque()  # the messages of the segment that was the first one

    def __bool__(self) -> bool:
        return bool(self._memory or self.segments.all or self._next)

    @property
    def size(self) -> int:
        """The approximate size of the messages that wait, in bytes."""
        return self._memory.size + self.segments.size + sum(len(one.data) for one in self._next)

    @property
    def parents(self) -> Set[str]:
        """The keys of the requests to which the messages that wait belong."""
        return {cell.key for cell in self._memory.cells.values()}

    def put(self, message: Message) -> bool:
        """Add a message. Return whether others were moved to disk, as there were too many in memory."""
        self._memory.put(message)
        if self._memory.size <= self._memory_limit:
            return False
        oldest: List[StoredMessage] = []
        while self._memory and self._memory.size > self._memory_limit - _PIECE:
            oldest.append(self._memory.pop())
        self.segments.put(oldest)
        return True

    def reduce(self) -> None:
        """Leave messages out if there are too many on disk."""
        Reduction(self._memory, self.segments, self._memory_limit).run()

    def take(self, runtime: Runtime, size: int) -> List[bytes]:
        """Remove and return the oldest messages, of about so many bytes; [] if none can be read."""
        taken: List[bytes] = []
        while self and size > 0:
            taken += (oldest := self._take_oldest(runtime))
            size -= sum(map(len, oldest))
        return taken

    def _take_oldest(self, runtime: Runtime) -> List[bytes]:
        """Remove and return the oldest message, perhaps with a notice before it; [] if none can be read."""
        while self.segments.all and not self._next:
            self._next.extend(self.segments.take())
        if not self:
            return []
        stored = self._next.popleft() if self._next else self._memory.pop()
        cell = self._memory.cells.get(stored.cell)
        if cell is None:  # its beginning was on a disk that lost it
            return [stored.data]
        taken = [stored.data]
        if cell.omitted and stored.begin >= cell.omitted_from:
            taken.insert(0, notice(runtime, cell))
            cell.omitted = 0
        self._memory.release(cell)
        return taken

    def clear(self) -> None:
        """Remove all messages."""
        self.segments.clear()
        self._next.clear()
        self._memory = WaitingMessages()
