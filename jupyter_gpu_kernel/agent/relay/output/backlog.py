"""What a kernel said while nobody reads: first in memory, then on disk, up to a cap, and what goes first there.

Beyond the cap are left out, each with a notice where it stood: the middle of a cell's text (of the cell with
most of it first), large displays but for their text, widgets' messages. Never: replies, states, errors, the
begin and end of cells and comms. This file knows neither link nor kernel.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ....wire.compose import make
from ....wire.messages import Channel, Message, MessageError
from ....wire.streams import Stream, dump, read_stream, with_stream
from .memory_queue import Cell, Kind, MemoryQueue
from .spill import Record, Segment, Spill

MIB = 1024 * 1024
MEMORY_MIB = 8
CAP_MIB = 512
KEEP = MIB
"""Characters of a cell's text that are kept at its beginning, or half of what it may have."""
LEAST = 2000
LARGE = (64 * 1024, 8 * 1024, 1024)
"""Bytes of a display that is left out but for its text: one size after the other."""

Trouble = Callable[[str], Any]
Change = Callable[[Record], List[Record]]


class Backlog:
    """`put` messages, `take` bytes, oldest first; true while something waits. Nothing here raises."""

    def __init__(
        self, folders: Sequence[Path], settings: Dict[str, Any], trouble: Trouble = lambda text: None
    ) -> None:
        """`folders`: where to spill; `settings`: journal_memory_mib, journal_cap_mib; `trouble` is told once
        what goes wrong."""
        self._memory = int(float(settings.get("journal_memory_mib", MEMORY_MIB)) * MIB)
        cap = int(float(settings.get("journal_cap_mib", CAP_MIB)) * MIB)
        self._spill = Spill(folders, cap, self._memory)
        self._waiting = MemoryQueue()
        self._trouble = trouble
        self._told = ""

    def __bool__(self) -> bool:
        return bool(self._waiting or self._spill.segments)

    def __repr__(self) -> str:
        return f"<Backlog memory={self._waiting.size} disk={self._spill.size}>"

    @property
    def size(self) -> int:
        """About how many bytes wait."""
        return self._waiting.size + self._spill.size

    def put(self, message: Message) -> None:
        """One more message waits."""
        self._waiting.put(message)
        if self._waiting.size > self._memory:
            self._spill.put(self._waiting.pop_all())
            if self._spill.full:
                self._tell(f"the journal cannot be written: {self._spill.full}")
            self._relieve()

    def take(self) -> List[bytes]:
        """The oldest message that waits, perhaps with a notice before it; [] if none does."""
        record = self._oldest()
        if record is None:
            self._told = ""
            return []
        cell = self._waiting.cells.get(record.cell)
        if cell is None:  # its beginning was on a disk that lost it
            return [record.data]
        taken = [record.data]
        if cell.left_out and record.begin >= cell.left_out_at:
            taken.insert(0, _notice(cell, record.data))
            cell.left_out = 0
        self._waiting.gone(cell)
        return taken

    def close(self) -> None:
        """Frees the disk."""
        self._spill.close()

    def _oldest(self) -> Optional[Record]:
        try:
            record = self._spill.take()
        except (OSError, EOFError) as error:
            self._tell(f"a part of the journal cannot be read again: {error}")
            return self._oldest()
        if record is None and self._waiting:
            record = self._waiting.pop()
        return record

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._trouble(text)

    # -------------------------------------------------------------------------------------- beyond the cap

    @property
    def _goal(self) -> int:
        """The size that leaves room for as much as the memory holds."""
        capacity = self._spill.capacity
        return max(capacity - self._memory, capacity // 2)

    @property
    def _fits(self) -> bool:
        return self._spill.size <= self._goal

    def _relieve(self) -> None:
        if self._fits:
            return
        self._tell("the journal's cap is reached: output is left out")
        share = self._share()
        while share > LEAST and not self._fits:
            self._thin(Kind.STREAM, partial(self._has_middle, share), partial(self._without_middle, share))
            share //= 2
        for size in LARGE:
            self._thin(Kind.DISPLAY, partial(_has_larger, size), partial(_as_text, size))
        self._thin(Kind.WIDGET, bool, self._leave_out)

    def _share(self) -> int:
        """How much text each cell may have, so that all fits; who has less gives nothing."""
        sizes: Counter[int] = Counter()
        for segment in self._spill.segments:
            sizes.update(segment.bytes_of.get(Kind.STREAM, {}))
        room = max(0, sum(sizes.values()) - self._spill.size + self._goal)
        for cells, size in zip(range(len(sizes), 0, -1), sorted(sizes.values())):
            if size * cells > room:
                return room // cells
            room -= size
        return room

    def _middle(self, share: int, number: int) -> Tuple[int, int]:
        """Where the middle of a cell's text begins and ends."""
        cell = self._waiting.cells.get(number)
        head = min(KEEP, share // 2)
        return head, (cell.position if cell else 0) - (share - head)

    def _has_middle(self, share: int, segment: Segment) -> bool:
        for number in segment.bytes_of.get(Kind.STREAM, {}):
            begin, end = self._middle(share, number)
            if segment.spans[number][0] < end and segment.spans[number][1] > begin:
                return True
        return False

    def _thin(self, kind: Kind, wanted: Callable[[Segment], bool], change: Change) -> None:
        """Changes the records of this kind in the segments wanted, the oldest first, until all fits."""
        at = 0
        while at < len(self._spill.segments) and not self._fits:
            segment = self._spill.segments[at]
            if kind not in segment.bytes_of or not wanted(segment):
                at += 1
                continue
            kept: List[Record] = []
            for record in self._take_all(at):
                kept += change(record) if record.kind == kind else [record]
            if not self._spill.replace(at, kept):
                at += 1

    def _take_all(self, at: int) -> List[Record]:
        try:
            return self._spill.segments[at].take_all()
        except (OSError, EOFError) as error:
            self._tell(f"a part of the journal cannot be read again: {error}")
            return []

    def _without_middle(self, share: int, record: Record) -> List[Record]:
        begin, end = self._middle(share, record.cell)
        begin, end = max(begin, record.begin), min(end, record.end)
        cell = self._waiting.cells.get(record.cell)
        if begin >= end or cell is None:
            return [record]
        message = Message.decode(record.data)
        stream = read_stream(message, "stream")
        if stream is None:
            return [record]
        self._note(cell, begin, end - begin)
        kept = []
        for number, (first, last) in enumerate(((record.begin, begin), (end, record.end))):
            if first < last:
                text = stream.text[first - record.begin : last - record.begin]
                data = with_stream(message, number, Stream(stream.name, text)).encode()
                kept.append(record._replace(begin=first, end=last, data=data))
        cell.waiting += len(kept)
        self._waiting.gone(cell)
        return kept

    def _leave_out(self, record: Record) -> List[Record]:
        cell = self._waiting.cells.get(record.cell)
        if cell is not None:
            self._note(cell, record.begin, len(record.data))
            self._waiting.gone(cell)
        return []

    def _note(self, cell: Cell, at: int, size: int) -> None:
        cell.left_out_at = min(cell.left_out_at, at) if cell.left_out else at
        cell.left_out += size


def _notice(cell: Cell, before: bytes) -> bytes:
    text = f"\n[… {_amount(cell.left_out)} of output left out here: the journal's cap …]\n"
    session = str(Message.decode(before).header().get("session", ""))
    parts = make("stream", {"name": "stderr", "text": text}, cell.parent, session)
    return Message(Channel.IOPUB, 0, parts).encode()


def _has_larger(size: int, segment: Segment) -> bool:
    return segment.largest.get(Kind.DISPLAY, 0) > size


def _as_text(size: int, record: Record) -> List[Record]:
    """A large display, as the text that it brings along."""
    if len(record.data) <= size:
        return [record]
    message = Message.decode(record.data)
    try:
        content = in_words(message.content(), size // 2, len(record.data), "the journal's cap")
    except (MessageError, KeyError, TypeError, ValueError):
        return [record]
    parts = (*message.parts[:3], dump(content))
    return [record._replace(kind=Kind.KEEP, data=message.replace(parts=parts).encode())]


def in_words(content: Dict[str, Any], room: int, size: int, why: str) -> Dict[str, Any]:
    """A display's content with so much of its text, and a notice. KeyError, TypeError, ValueError: it is none."""
    data = dict(content["data"])
    lost = ", ".join(sorted(set(data) - {"text/plain"})) or "text"
    notice = f"[… {_amount(size)} of {lost} left out here: {why} …]"
    text = str(data.get("text/plain", ""))[:room]
    return dict(content, data={"text/plain": f"{text}\n{notice}".strip()}, metadata={})


def _amount(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{max(1, size // 1000)} kB"
