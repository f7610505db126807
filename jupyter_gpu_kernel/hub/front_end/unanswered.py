"""The cells of one kernel that front ends wait for, in a file, so that the successor of a killed hub knows them.

A record is appended for each cell, and for each reply. The file is emptied when there is a reply to every cell, and
rewritten when more than half of it belongs to cells that have a reply. Like the other files of a killed hub it survives
the process, not the machine. Cells may hold secrets: only the user can read it.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from ...wire.files import replace_file
from ...wire.messages import Channel, Message, MessageError, id_of, type_of

_RECORD = struct.Struct("<cI")
_CELL, _REPLY = b"c", b"r"
_COMPACT = 1024 * 1024
"""A file of at most so many bytes is not rewritten."""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
_SUFFIX = ".cells"
_KEEP = 7 * 24 * 3600.0
"""Seconds for which the file of a killed hub is kept, if nobody asks for its cells."""


class UnansweredCells:
    """The file of one kernel: `add` each cell, and `remove` each cell by its msg_id. On a full disk nothing is kept,
    and a successor finds no cells."""

    def __init__(self, counts_file: Path | None) -> None:
        """`counts_file`: the file of the kernel's counts, which decides the place of the cells; None: keep nothing."""
        self._path = None if counts_file is None else _path_of(counts_file)
        self._fd = -1
        self._sizes: dict[str, int] = {}  # of the cells, by msg_id
        self._live = self._written = 0  # bytes: of these cells; of the file

    def recall(self) -> list[Message]:
        """Return the cells that a killed hub has left, in order. Of a damaged file, return the cells before the
        damage."""
        cells = self._read()
        self.replace(cells)
        return cells

    def add(self, request: Message) -> None:
        """Record a cell that a front end waits for; ignore other requests."""
        is_cell = request.channel is Channel.SHELL and type_of(request) == "execute_request"
        msg_id = id_of(request)
        if is_cell and msg_id not in self._sizes:
            self._sizes[msg_id] = request.size
            self._live += request.size
            self._append(_CELL, request.encode())

    def remove(self, msg_id: str) -> None:
        """Forget the cell: the front end is about to get its reply."""
        if msg_id not in self._sizes:
            return
        self._live -= self._sizes.pop(msg_id)
        if not self._sizes:
            return self._empty()
        self._append(_REPLY, msg_id.encode())
        if self._written > max(_COMPACT, 2 * self._live):
            self.recall()

    def replace(self, cells: list[Message]) -> None:
        """Record these cells, and forget all others. A hub that is killed meanwhile leaves the old file or the new."""
        self.close()
        self._sizes = {cell.msg_id: cell.size for cell in cells}
        records = [_record(_CELL, cell.encode()) for cell in cells]
        self._live, self._written = sum(self._sizes.values()), sum(map(len, records))
        if self._path is None:
            return
        if not cells:
            return _remove(self._path)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, b"".join(records))
        except OSError:
            self._give_up()

    def move(self, counts_file: Path) -> None:
        """Write the cells to another file, for another kernel."""
        cells = self._read()
        self.replace([])
        self._path = _path_of(counts_file)
        self.replace(cells)

    def close(self) -> None:
        """Close the file, and leave it to a successor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _read(self) -> list[Message]:
        try:
            data = self._path.read_bytes() if self._path is not None else b""
        except OSError:
            return []
        cells: dict[str, Message] = {}
        with contextlib.suppress(MessageError):
            for kind, record in _records(data):
                if kind == _REPLY:
                    cells.pop(record.decode(errors="replace"), None)
                    continue
                cell = Message.decode(record)
                with contextlib.suppress(MessageError):  # the keeper could not read it either
                    cell.content()
                    cells[cell.msg_id] = cell.unparsed()
        return list(cells.values())

    def _append(self, kind: bytes, record: bytes) -> None:
        if self._path is None:
            return
        data = _record(kind, record)
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, _FLAGS, 0o600)
            complete = os.write(self._fd, data) == len(data)
        except OSError:
            complete = False
        self._written += len(data)
        if not complete:
            self._give_up()

    def _empty(self) -> None:
        if self._fd >= 0:
            try:
                os.ftruncate(self._fd, 0)
            except OSError:
                return self._give_up()
        elif self._path is not None:  # it was written as a whole, by `replace`
            _remove(self._path)
        self._written = 0

    def _give_up(self) -> None:
        """Keep nothing any more: a cell whose reply was not recorded would look as if a front end waited for it."""
        self.replace([])
        self._path = None


def remove_old(folder: Path, now: float) -> None:
    """Remove what killed hubs have left below this folder long ago, and empty folders. `now`: in seconds since 1970."""
    for path in folder.glob(f"*/*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > _KEEP:
                path.unlink()
    for path in folder.glob("*"):
        with contextlib.suppress(OSError):  # it is not empty
            path.rmdir()


def _record(kind: bytes, record: bytes) -> bytes:
    return _RECORD.pack(kind, len(record)) + record


def _path_of(counts_file: Path) -> Path:
    return counts_file.with_name(counts_file.name + _SUFFIX)


def _remove(path: Path) -> None:
    """Remove the file; or empty the file, if another process holds it open (on Windows)."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        with contextlib.suppress(OSError):
            os.truncate(path, 0)


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the complete records."""
    at = 0
    while len(data) - at >= _RECORD.size:
        kind, size = _RECORD.unpack_from(data, at)
        at += _RECORD.size + size
        if at <= len(data):
            yield kind, data[at - size : at]
