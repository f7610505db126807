"""The messages that wait for a hub, oldest first: in memory, then on disk, up to a cap.

What `put`, `take` and `clear` do is decided by the order of the calls alone. So a successor of a killed keeper, which
repeats them, has the same queue. `reduce` also depends on the free space of the disk, so a checkpoint of the log
follows it. Above the cap these are left out, each with a notice in its place, in this order: the middle of a cell's
text (first of the cell with the most text), large displays except for their text, messages of widgets. Replies,
statuses, errors, and the begin and end of cells and comms are never left out.
"""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from pathlib import Path
from typing import Callable, Deque, List, Set, Tuple

from ...wire.kernel_messages.compose import StreamText, dump, make, read_stream, with_stream
from ...wire.messages import Channel, Message, MessageError
from ...wire.runtime import Runtime
from ..kernel_settings import KernelSettings
from .cells import as_text, format_size
from .segments import Segment, Segments, StoredMessage
from .waiting import CellOutput, EntryKind, WaitingMessages

HEAD = 1024 * 1024
"""Characters that are kept at the beginning of a cell's text, or half of what it may have."""
MIN_SHARE = 2000
"""Characters of text that a cell may have at least."""
LARGE_DISPLAYS = (64 * 1024, 8 * 1024, 1024)
"""Sizes in bytes above which a display is reduced to its text: one after the other."""
_REASON = "the output exceeded journal_cap_mib"
Change = Callable[[StoredMessage], List[StoredMessage]]
MIB = 1024 * 1024
_PIECE = MIB
"""Bytes moved to disk at once: few, as other messages wait meanwhile, but more than a line each time."""


class Reduction:
    """Reduces the messages on disk. `memory` knows the cells that they belong to."""

    def __init__(self, memory: WaitingMessages, segments: Segments, memory_limit: int) -> None:
        self._memory = memory
        self._segments = segments
        self._memory_limit = memory_limit

    def run(self) -> None:
        """Leave out what is too much, if the messages on disk exceed the cap."""
        if self._fits:
            return
        self._segments.problems.add(
            "the output that waits for a front end exceeds journal_cap_mib: a part of it is left out"
        )
        share = self._share()
        while share > MIN_SHARE and not self._fits:
            self._reduce(
                EntryKind.STREAM, partial(self._has_middle, share), partial(self._without_middle, share)
            )
            share //= 2
        for size in LARGE_DISPLAYS:
            self._reduce(EntryKind.DISPLAY, partial(_has_larger, size), partial(_reduce_display, size))
        self._reduce(EntryKind.WIDGET, bool, self._leave_out)

    @property
    def _goal(self) -> int:
        """The size to shrink to: it leaves room for as much as the memory holds."""
        capacity = self._segments.capacity
        return max(capacity - self._memory_limit, capacity // 2)

    @property
    def _fits(self) -> bool:
        return self._segments.size <= self._goal

    def _share(self) -> int:
        """Return how much text each cell may have, so that everything fits. Cells with less text lose nothing."""
        sizes: Counter[int] = Counter()
        for segment in self._segments.all:
            sizes.update({cell: size for cell, (size, _, _) in segment.texts.items()})
        room = max(0, sum(sizes.values()) - self._segments.size + self._goal)
        for cells, size in zip(range(len(sizes), 0, -1), sorted(sizes.values())):
            if size * cells > room:
                return room // cells
            room -= size
        return room

    def _middle(self, share: int, number: int) -> Tuple[int, int]:
        """Return where the middle of a cell's text, which is left out, begins and ends."""
        cell = self._memory.cells.get(number)
        head = min(HEAD, share // 2)
        return head, (cell.position if cell else 0) - (share - head)

    def _has_middle(self, share: int, segment: Segment) -> bool:
        for cell, (_, first, last) in segment.texts.items():
            begin, end = self._middle(share, cell)
            if first < end and last > begin:
                return True
        return False

    def _reduce(self, kind: EntryKind, wanted: Callable[[Segment], bool], change: Change) -> None:
        """Change the messages of this kind in the wanted segments, the oldest first, until everything fits."""
        at = 0
        while at < len(self._segments.all) and not self._fits:
            segment = self._segments.all[at]
            if kind not in segment.largest or not wanted(segment):
                at += 1
                continue
            kept: List[StoredMessage] = []
            try:
                for stored in segment.read():
                    kept += change(stored) if stored.kind == kind else [stored]
                at += not self._segments.replace(at, kept)
            except OSError:  # which is reported when the messages are needed
                at += 1

    def _without_middle(self, share: int, stored: StoredMessage) -> List[StoredMessage]:
        begin, end = self._middle(share, stored.cell)
        begin, end = max(begin, stored.begin), min(end, stored.end)
        cell = self._memory.cells.get(stored.cell)
        if begin >= end or cell is None:
            return [stored]
        message = Message.decode(stored.data)
        stream = read_stream(message, "stream")
        if stream is None:
            return [stored]
        self._note(cell, begin, end - begin)
        kept = []
        for number, (first, last) in enumerate(((stored.begin, begin), (end, stored.end))):
            if first < last:
                text = stream.text[first - stored.begin : last - stored.begin]
                data = with_stream(message, number, StreamText(stream.name, text)).encode()
                kept.append(stored._replace(begin=first, end=last, data=data))
        cell.waiting += len(kept)
        self._memory.release(cell)
        return kept

    def _leave_out(self, stored: StoredMessage) -> List[StoredMessage]:
        cell = self._memory.cells.get(stored.cell)
        if cell is not None:
            self._note(cell, stored.begin, len(stored.data))
            self._memory.release(cell)
        return []

    def _note(self, cell: CellOutput, at: int, size: int) -> None:
        cell.omitted_from = min(cell.omitted_from, at) if cell.omitted else at
        cell.omitted += size


def notice(runtime: Runtime, cell: CellOutput) -> bytes:
    """Return the notice in place of a cell's output that was left out."""
    text = f"\n[… {format_size(cell.omitted)} of output left out here: {_REASON} …]\n"
    parts = make(runtime, "stream", {"name": "stderr", "text": text}, cell.parent)
    return Message(Channel.IOPUB, 0, parts).encode()


def _has_larger(size: int, segment: Segment) -> bool:
    return segment.largest.get(EntryKind.DISPLAY, 0) > size


def _reduce_display(size: int, stored: StoredMessage) -> List[StoredMessage]:
    """Reduce a large display to its text."""
    if len(stored.data) <= size:
        return [stored]
    message = Message.decode(stored.data)
    try:
        content = as_text(message.content(), size // 2, len(stored.data), _REASON)
    except (MessageError, KeyError, TypeError, ValueError):
        return [stored]
    parts = (*message.parts[:3], dump(content))
    return [stored._replace(kind=EntryKind.KEEP, data=message.replace(parts=parts).encode())]


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
