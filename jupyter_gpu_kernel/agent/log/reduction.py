"""What is left out of the output that waits for the hub, when it exceeds the cap on disk.

These are left out, each with a notice in its place, in this order: the middle of a cell's text (first of the cell with
the most text), large displays except for their text, messages of widgets. Replies, statuses, errors, and the begin and
end of cells and comms are never left out.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

from ...wire.kernel_messages.compose import make
from ...wire.kernel_messages.stream_output import StreamText, dump, read_stream, with_stream
from ...wire.messages import Channel, Message, MessageError
from ...wire.runtime import Runtime
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
    text = f"\n[… {_format_size(cell.omitted)} of output left out here: {_REASON} …]\n"
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


def as_text(content: Dict[str, Any], room: int, size: int, reason: str) -> Dict[str, Any]:
    """Return a display's content with `room` characters of its text and a notice that the rest is left out.

    Raises KeyError, TypeError or ValueError if this is not a display's content.
    """
    data = dict(content["data"])
    omitted = ", ".join(sorted(set(data) - {"text/plain"})) or "text"
    notice = f"[… {_format_size(size)} of {omitted} left out here: {reason} …]"
    text = str(data.get("text/plain", ""))[:room]
    return dict(content, data={"text/plain": f"{text}\n{notice}".strip()}, metadata={})


def _format_size(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{max(1, size // 1000)} kB"
