"""The requests of one kernel that front ends wait for, in a file, so that the successor of a killed hub has them.

A record is appended for each request, for each change of its mark, and for each reply. The file is removed when there
is a reply to every request, and rewritten when more than half of it is outdated. Like the other files of a killed hub
it survives the process, not the machine. Cells may hold secrets: only the user can read the file. What a user enters at
a prompt (an input_reply) is never written.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...wire.files import replace_file
from ...wire.messages import Channel, Message, MessageError, key_of

_RECORD = struct.Struct("<BI")
_REPLY = 255
"""The mark of a reply, whose record has the key of the request."""
_COMPACT = 1024 * 1024
"""A file of at most so many bytes is not rewritten."""
_BINARY = getattr(os, "O_BINARY", 0)
_SUFFIX = ".requests"
_KEEP = 7 * 24 * 3600.0
"""Seconds for which the file of a killed hub is kept, if nobody asks for its requests."""


class SavedRequest(NamedTuple):
    """A request in the file. `mark`: a number below 255, whose meaning `RequestTable` knows."""

    mark: int
    message: Message


Change = tuple[str, SavedRequest | None]
"""What the file has to have for the request with this key (`key_of`) from now on; None: nothing."""


class RequestFile:
    """The file of one kernel. On a full disk nothing is kept, and a successor finds no requests."""

    def __init__(self, counts_file: Path | None) -> None:
        """`counts_file`: the file of the kernel's counts, which decides the place of the requests; None: keep
        nothing."""
        self._path = None if counts_file is None else _path_of(counts_file)
        self._sizes: dict[str, int] = {}  # of the requests, by key
        self._live = self._written = 0  # bytes: of these requests; of the file

    def __len__(self) -> int:
        return len(self._sizes)

    def recall(self) -> list[SavedRequest]:
        """Return the requests that a killed hub has left, in order. Of a damaged file, return the requests before the
        damage."""
        saved = self._read()
        self.replace(saved)
        return saved

    def write(self, changes: Iterable[Change]) -> None:
        """Append these changes."""
        records = b"".join(map(self._record_of, changes))
        if not records or self._path is None:
            return
        if not self._sizes:
            return self.replace([])
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY, 0o600)
            with open(fd, "wb", buffering=0) as file:
                complete = file.write(records) == len(records)
        except OSError:
            complete = False
        self._written += len(records)
        if not complete:
            self._give_up()
        elif self._written > max(_COMPACT, 2 * self._live):
            self.recall()

    def replace(self, saved: list[SavedRequest]) -> None:
        """Keep these requests, and forget all others. A hub that is killed meanwhile leaves the old file or the new."""
        self._sizes = {key_of(one.message): one.message.size for one in saved}
        records = b"".join(_record(mark, message.encode()) for mark, message in saved)
        self._live, self._written = sum(self._sizes.values()), len(records)
        if self._path is None:
            return
        if not saved:
            return _remove(self._path)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, records)
        except OSError:
            self._give_up()

    def move(self, counts_file: Path) -> None:
        """Write the requests to another file, for another kernel."""
        saved = self._read()
        self.replace([])
        self._path = _path_of(counts_file)
        self.replace(saved)

    def _record_of(self, change: Change) -> bytes:
        """Return the record that has to be written; b"" if the file needs none."""
        key, saved = change
        known = self._sizes.pop(key, 0)
        self._live -= known
        if saved is None or saved.message.channel is Channel.STDIN:
            return _record(_REPLY, key.encode()) if known else b""
        self._sizes[key] = saved.message.size
        self._live += saved.message.size
        return _record(saved.mark, saved.message.encode())

    def _read(self) -> list[SavedRequest]:
        try:
            data = self._path.read_bytes() if self._path is not None else b""
        except OSError:
            return []
        saved: dict[str, SavedRequest] = {}
        with contextlib.suppress(MessageError):
            for mark, record in _records(data):
                if mark == _REPLY:
                    saved.pop(record.decode(errors="replace"), None)
                    continue
                message = Message.decode(record)
                with contextlib.suppress(MessageError):  # the keeper could not read it either
                    message.content()
                    saved[key_of(message)] = SavedRequest(mark, message.unparsed())
        return list(saved.values())

    def _give_up(self) -> None:
        """Keep nothing any more: a request whose reply was not recorded would look as if a front end waited for it."""
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


def _record(mark: int, data: bytes) -> bytes:
    return _RECORD.pack(mark, len(data)) + data


def _path_of(counts_file: Path) -> Path:
    return counts_file.with_name(counts_file.name + _SUFFIX)


def _remove(path: Path) -> None:
    """Remove the file; or empty the file, if another process holds it open (on Windows)."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        with contextlib.suppress(OSError):
            os.truncate(path, 0)


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the complete records."""
    at = 0
    while len(data) - at >= _RECORD.size:
        mark, size = _RECORD.unpack_from(data, at)
        at += _RECORD.size + size
        if at <= len(data):
            yield mark, data[at - size : at]
