"""Records on disk, in files without a name: nothing can be read by path, and nothing is left behind.

First in, first out, in several files, so that records that were read free their space and the middle can be removed.
If the disk takes no more, a segment is kept in memory, and the capacity is smaller. This module knows no messages.
"""

from __future__ import annotations

import io
import os
import struct
import tempfile
from collections import deque
from pathlib import Path
from typing import IO, Deque, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

SEGMENT = 8 * 1024 * 1024
"""The size of one file in bytes: that much is read and written at once when its middle is removed."""
_HEAD = struct.Struct("!IBIQQ")


class SpillRecord(NamedTuple):
    """A record. `kind` and `cell` are the backlog's numbers; `begin` and `end` are positions in the cell's text."""

    kind: int
    cell: int
    begin: int
    end: int
    data: bytes


class Segment:
    """A file of records, oldest first.

    bytes_of: The size of the records of each kind and cell that were not read yet.
    spans: Where the text of each cell in this segment begins and ends.
    largest: The size of the largest record of each kind.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.size = 0
        self.bytes_of: Dict[int, Dict[int, int]] = {}
        self.spans: Dict[int, Tuple[int, int]] = {}
        self.largest: Dict[int, int] = {}
        self._file = file
        self._begin = 0

    @property
    def on_disk(self) -> bool:
        """Whether the segment is on disk, not in memory."""
        return not isinstance(self._file, io.BytesIO)

    @property
    def extent(self) -> int:
        """The size of the file, including the records that were read already."""
        return self._begin + self.size

    def append(self, records: Iterable[SpillRecord]) -> None:
        """Add all of these records, or none of them (OSError)."""
        end = self.extent
        records = list(records)
        data = b"".join(
            part for record in records for part in (_HEAD.pack(len(record.data), *record[:4]), record.data)
        )
        try:
            self._write(end, data)
        except OSError:
            self._file.truncate(end)
            raise
        self.size += len(data)
        for record in records:
            self._count(record, len(record.data))
            begin, end = self.spans.get(record.cell, (record.begin, record.end))
            self.spans[record.cell] = (min(begin, record.begin), max(end, record.end))
            self.largest[record.kind] = max(self.largest.get(record.kind, 0), len(record.data))

    def next(self) -> SpillRecord:
        """Remove and return the oldest record. Raises OSError or EOFError if it cannot be read back."""
        self._file.seek(self._begin)
        length, kind, cell, begin, end = _HEAD.unpack(self._read(_HEAD.size))
        record = SpillRecord(kind, cell, begin, end, self._read(length))
        self._begin += _HEAD.size + length
        self.size -= _HEAD.size + length
        self._count(record, -length)
        return record

    def take_all(self) -> List[SpillRecord]:
        """Remove and return all records. The segment is then empty, and its space is free."""
        records = []
        while self.size:
            records.append(self.next())
        self._begin = 0
        self.spans.clear()
        self.largest.clear()
        return records

    def close(self) -> None:
        """Free the space."""
        self._file.close()

    def _count(self, record: SpillRecord, size: int) -> None:
        cells = self.bytes_of.setdefault(record.kind, {})
        cells[record.cell] = cells.get(record.cell, 0) + size
        if not cells[record.cell]:
            del cells[record.cell]

    def _write(self, at: int, data: bytes) -> None:
        self._file.truncate(at)
        self._file.seek(at)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise EOFError("a record is not whole")
        return data


class Spill:
    """A queue of records in segments: `put` at the end, `take` from the front, `replace` the records of a segment."""

    def __init__(self, folders: Sequence[Path], cap: int, spare: int) -> None:
        """Create an empty queue in the folder that has the most free space.

        cap: The limit for the size on disk in bytes, if that is not more than a twentieth of the free space.
        spare: The limit for the size in memory if the disk takes nothing.
        """
        self.segments: Deque[Segment] = deque()
        self.full = ""  # why the disk took no more at the last attempt
        self._folders = list(folders)
        self._cap = cap
        self._spare = spare

    @property
    def size(self) -> int:
        """The size of all records in bytes."""
        return sum(segment.size for segment in self.segments)

    @property
    def capacity(self) -> int:
        """The size that all records should have at most, in bytes."""
        used = sum(segment.size for segment in self.segments if segment.on_disk)
        if self.full:
            return min(self._cap, used + self._spare)
        return min(self._cap, max(self._spare, (max(map(_free, self._folders), default=0) + used) // 20))

    def put(self, records: List[SpillRecord]) -> None:
        """Add records. This never fails: what the disk does not take stays in memory."""
        size = sum(_HEAD.size + len(record.data) for record in records)
        try:
            self._put_on_disk(records, size)
            self.full = ""
        except OSError as error:
            self.full = error.strerror or type(error).__name__
            if not self.segments or self.segments[-1].on_disk:
                self.segments.append(Segment(io.BytesIO()))
            self.segments[-1].append(records)

    def take(self) -> Optional[SpillRecord]:
        """Remove and return the oldest record; None if there is none.

        Raises OSError or EOFError if some records are lost.
        """
        while self.segments:
            segment = self.segments[0]
            if segment.size:
                try:
                    return segment.next()
                except (OSError, EOFError):
                    self._drop(0)
                    raise
            self._drop(0)
        return None

    def replace(self, number: int, records: List[SpillRecord]) -> bool:
        """Put records back after `take_all`. Return True if the segment before took them, and this segment is gone."""
        segment = self.segments[number]
        before = self.segments[number - 1] if number else None
        if before is not None and before.extent + sum(len(r.data) for r in records) < SEGMENT:
            try:
                before.append(records)
                self._drop(number)
                return True
            except OSError:
                pass  # the segment's own file has room for them
        try:
            segment.append(records)
        except OSError:
            self.segments[number] = Segment(io.BytesIO())
            self.segments[number].append(records)
            segment.close()
        return False

    def close(self) -> None:
        """Free all space."""
        while self.segments:
            self._drop(0)

    def _drop(self, number: int) -> None:
        self.segments[number].close()
        del self.segments[number]

    def _put_on_disk(self, records: List[SpillRecord], size: int) -> None:
        last = self.segments[-1] if self.segments else None
        if last is not None and last.on_disk and last.extent + size <= SEGMENT:
            return last.append(records)
        problem = OSError("no folder can be written to")
        for folder in sorted(self._folders, key=_free, reverse=True):
            try:
                return self.segments.append(_written(folder, records))
            except OSError as error:
                problem = error
        raise problem


def folders(own: Path) -> List[Path]:
    """Return the folders for a spill: our own one, and those for temporary files."""
    return [own, Path(tempfile.gettempdir()), Path("/var/tmp")]


def _written(folder: Path, records: List[SpillRecord]) -> Segment:
    """Return a new segment, in a file without a name."""
    segment = Segment(tempfile.TemporaryFile(buffering=0, dir=str(folder)))  # noqa: SIM115 (the segment closes it)
    try:
        segment.append(records)
    except OSError:
        segment.close()
        raise
    return segment


def _free(folder: Path) -> int:
    """Return how many bytes we may still write in this folder."""
    try:
        place = os.statvfs(str(folder))
    except OSError:
        return 0
    return place.f_bavail * place.f_frsize
