"""How many messages of each kernel were delivered to its front ends, who the clients of these are, and which requests
wait for a reply, in files. With them the successor of a killed hub goes on exactly where that hub was.

The counts are memory-mapped: a write is a write to memory and survives the process, though not the machine. So the
files belong on this machine; a file server that does not answer would block the hub.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path

from ...wire.messages import Lane
from .request_file import RequestFile

_LAYOUT = struct.Struct(f"<{len(Lane)}Q")


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
    """The files of one kernel. `counts` are the counts that a killed hub left; None if there are none."""

    def __init__(self, path: Path) -> None:
        self._clients: dict[int, Clients] = {}
        self.requests = RequestFile(path)
        self._open(path)
        counts = list(_LAYOUT.unpack_from(self._map))
        self.counts = counts if any(counts) else None

    @property
    def kernel_id(self) -> str:
        """The kernel whose counts these are."""
        return self._path.name

    def save(self, counts: list[int]) -> None:
        """Save how many messages were delivered, per lane."""
        _LAYOUT.pack_into(self._map, 0, *counts)

    def clients(self, index: int) -> Clients:
        """Return the clients of the front end with this number."""
        return self._clients.setdefault(index, Clients(self._clients_path(index)))

    @property
    def front_ends(self) -> list[int]:
        """The numbers of the front ends that the kernel has, or had when the hub was killed."""
        names = [path.name.split(".")[-2] for path in self._clients_paths()]
        return sorted(int(name) for name in names if name.isdecimal())

    def forget_front_end(self, index: int) -> None:
        """Remove the file of a front end that has left."""
        self._clients.pop(index, None)
        self._clients_path(index).unlink(missing_ok=True)

    def switch(self, kernel_id: str) -> None:
        """The front ends have another kernel now, of which nothing was delivered yet; their clients stay."""
        path = self._path.with_name(kernel_id)
        if path == self._path:
            return
        self.requests.move(path)
        self._forget()
        self._open(path)
        self.save([0 for _ in Lane])
        for index, clients in self._clients.items():
            self._clients_path(index).unlink(missing_ok=True)
            clients.move(self._clients_path(index))

    def close(self) -> None:
        """Close the files, and leave the files to a successor."""
        self._map.close()

    def forget(self) -> None:
        """Close and remove the files: there will be no successor."""
        self.requests.replace([])
        self._forget()

    def _forget(self) -> None:
        """Close and remove all files but the file of the requests; and the node's folder, if it is empty then."""
        self._map.close()
        for path in (self._path, *self._clients_paths()):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it is not empty
            self._path.parent.rmdir()

    def _open(self, path: Path) -> None:
        self._path = path
        try:
            self._map = _map_file(path)
        except OSError:  # a full disk: then a successor does not know the counts
            self._map = mmap.mmap(-1, _LAYOUT.size)

    def _clients_paths(self) -> list[Path]:
        return list(self._path.parent.glob(f"{self._path.name}.*.clients"))

    def _clients_path(self, index: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{index}.clients")


def _map_file(path: Path) -> mmap.mmap:
    """Map the file. The disk space is allocated now: a write to a mapped file without space kills the process."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    try:
        if os.fstat(fd).st_size < _LAYOUT.size:
            os.write(fd, bytes(_LAYOUT.size))
        return mmap.mmap(fd, _LAYOUT.size)
    finally:
        os.close(fd)  # the map has its own descriptor
