"""The files by which the successor of a killed hub goes on exactly where that hub was: how many messages of each kernel
were delivered to its front ends, who the clients of these are, and which requests wait for a reply.

The files survive the process, though not the machine, so they belong on this machine; a file server that does not
answer would block the hub. The counts are memory-mapped: a write is a write to memory.

Of the requests a record is appended for each request, for each change of its mark, and for each reply. Their file is
made empty when front ends have a reply to every request, and rewritten when more than half of it is outdated. Cells
may hold secrets: only the user can read the file. What a user enters at a prompt (an input_reply) is never written.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...wire.files import replace_file
from ...wire.messages import Channel, Lane, Message, MessageError
from .requests import Change, SavedRequest, header_key

_LAYOUT = struct.Struct(f"<{len(Lane) + 1}Q")
_RECORD = struct.Struct("<BI")
_REPLY = 255
"""The mark of a reply, whose record has the key of the request."""
_COMPACT = 1024 * 1024
"""A file of at most so many bytes is not rewritten."""
_BINARY = getattr(os, "O_BINARY", 0)
_SUFFIX = ".requests"
_KEEP = 7 * 24 * 3600.0
"""Seconds for which the file of a killed hub is kept, if nobody asks for its requests."""


class RequestFile:
    """The file of one kernel. On a full disk nothing is kept, and a successor finds no requests."""

    def __init__(self, counts_file: Path | None) -> None:
        """`counts_file`: the file of the kernel's counts, which decides the place of the requests; None: keep
        nothing."""
        self._path = None if counts_file is None else _path_of(counts_file)
        self._fd = -1  # of the file, once it was written
        self._sizes: dict[bytes, int] = {}  # of the requests, by key
        self._live = self._written = 0  # bytes: of these requests; of the file

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
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY, 0o600)
            complete = os.write(self._fd, records) == len(records)
        except OSError:
            complete = False
        self._written += len(records)
        if not complete:
            self._give_up()
        elif self._sizes and self._written > max(_COMPACT, 2 * self._live):
            self.recall()

    @property
    def is_written(self) -> bool:
        """Whether the file is open, and not empty."""
        return self._written > 0 and self._fd >= 0

    def tidy(self) -> None:
        """Make the file empty, if there is a reply to every request."""
        if self.is_written and not self._sizes:
            try:
                os.ftruncate(self._fd, 0)
                self._written = 0
            except OSError:
                self._give_up()

    def close(self) -> None:
        """Close the file, and leave it to a successor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def replace(self, saved: list[SavedRequest]) -> None:
        """Keep these requests, and forget all others. A hub that is killed meanwhile leaves the old file or the new."""
        self._sizes = {header_key(one.message): one.message.size for one in saved}
        records = b"".join(_record(mark, message.encode()) for mark, message in saved)
        self._live, self._written = sum(self._sizes.values()), len(records)
        self.close()
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
            return _record(_REPLY, key) if known else b""
        self._sizes[key] = saved.message.size
        self._live += saved.message.size
        return _record(saved.mark, saved.message.encode())

    def _read(self) -> list[SavedRequest]:
        try:
            data = self._path.read_bytes() if self._path is not None else b""
        except OSError:
            return []
        saved: dict[bytes, SavedRequest] = {}
        with contextlib.suppress(MessageError):
            for mark, record in _records(data):
                if mark == _REPLY:
                    saved.pop(record, None)
                    continue
                message = Message.decode(record)
                with contextlib.suppress(MessageError):  # the keeper could not read it either
                    message.content()
                    saved[header_key(message)] = SavedRequest(mark, message.unparsed())
        return list(saved.values())

    def _give_up(self) -> None:
        """Keep nothing any more: a request whose reply was not recorded would look as if a front end waited for it."""
        self.replace([])
        self._path = None


class Clients:
    """The identities of one front end's clients, in a file. A client's number is its place in the list, from 1."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = self._read()
        self._append([])  # the file's existence says that there is this front end

    def add(self, identity: bytes) -> None:
        """Add a client at the end of the list."""
        self.known.append(identity)
        self._append([identity])

    def move(self, path: Path) -> None:
        """Write the list to another file, for another kernel."""
        self._path = path
        self._append(self.known)

    def _append(self, identities: list[bytes]) -> None:
        with contextlib.suppress(OSError), open(self._path, "a") as file:  # a full disk
            file.writelines(identity.hex() + "\n" for identity in identities)

    def _read(self) -> list[bytes]:
        try:
            return [bytes.fromhex(line) for line in self._path.read_text().splitlines()]
        except (OSError, ValueError):
            return []


class Delivered:
    """The files of one kernel. `counts` are the counts that a killed hub left; None if there are none. `pieces`: how
    many pieces of the next ordered message it had delivered, if that message was split."""

    def __init__(self, path: Path) -> None:
        self._clients: dict[int, Clients] = {}
        self.requests = RequestFile(path)
        self._open(path)
        names = [file.name.split(".")[-2] for file in path.parent.glob(f"{path.name}.*.clients")]
        self._front_ends_before = {int(name) for name in names if name.isdecimal()}  # of a killed hub
        *counts, self.pieces = _LAYOUT.unpack_from(self._map)
        self.counts = counts if any(counts) else None

    def save(self, counts: list[int], pieces: int = 0) -> None:
        """Save how many messages were delivered, per lane, and how many pieces of the next ordered one."""
        _LAYOUT.pack_into(self._map, 0, *counts, pieces)

    def take_pieces(self, lane: Lane, counts: list[int]) -> int:
        """Return how many pieces of a message in this lane, which comes now, a killed hub has delivered. `counts`: with
        this message. The message is the first one in its lane, or nobody needs it any more."""
        if lane is not Lane.ORDERED:
            return 0
        pieces, self.pieces = self.pieces, 0
        return pieces if self.counts and self.counts[lane] == counts[lane] - 1 else 0

    def clients(self, index: int) -> Clients:
        """Return the clients of the front end with this number."""
        return self._clients.setdefault(index, Clients(self._clients_path(index)))

    @property
    def front_ends(self) -> list[int]:
        """The numbers of the front ends that the kernel has, or had when the hub was killed."""
        return sorted({*self._front_ends_before, *self._clients})

    def forget_front_end(self, index: int) -> None:
        """Remove the file of a front end that has left."""
        self._clients.pop(index, None)
        self._front_ends_before.discard(index)
        self._clients_path(index).unlink(missing_ok=True)

    def switch(self, kernel_id: str) -> None:
        """The front ends have another kernel now, of which nothing was delivered yet; their clients stay."""
        path = self._path.with_name(kernel_id)
        if path == self._path:
            return
        self.requests.move(path)
        self._forget()
        self._open(path)
        self.pieces = 0
        self.save([0 for _ in Lane])
        self._front_ends_before.clear()
        for index, clients in self._clients.items():
            self._clients_path(index).unlink(missing_ok=True)
            clients.move(self._clients_path(index))

    def close(self) -> None:
        """Close the files, and leave the files to a successor."""
        self.requests.close()
        self._map.close()

    def forget(self) -> None:
        """Close and remove the files: there will be no successor."""
        self.requests.replace([])
        self._forget()

    def _forget(self) -> None:
        """Close and remove all files but the file of the requests; and the node's folder, if it is empty then."""
        self._map.close()
        for path in (self._path, *map(self._clients_path, self.front_ends)):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it is not empty
            self._path.parent.rmdir()

    def _open(self, path: Path) -> None:
        self._path = path
        try:
            self._map = _map_file(path)
        except OSError:  # a full disk: then a successor does not know the counts
            self._map = mmap.mmap(-1, _LAYOUT.size)

    def _clients_path(self, index: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{index}.clients")


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


def _map_file(path: Path) -> mmap.mmap:
    """Map the file. The disk space is allocated now: a write to a mapped file without space kills the process."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        if size < _LAYOUT.size:
            os.write(fd, bytes(_LAYOUT.size - size))
        return mmap.mmap(fd, _LAYOUT.size)
    finally:
        os.close(fd)  # the map has its own descriptor
