"""How much of each kernel's messages was passed on to its front ends, and who their clients are: in files, so that a
killed hub's successor goes on exactly there.

The counts are mapped: a write is a write to memory, and survives the process, though not the machine. So the files
belong on this machine: a file server that does not answer would stop the hub.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path

from ...wire.messages import Lane

_LAYOUT = struct.Struct(f"<{len(Lane)}Q")


class Clients:
    """The identities of one front end's clients, as long as the kernel has that front end. Numbers begin with 1."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = self._read()
        self._write([])  # the file says that there is this front end

    def add(self, identity: bytes) -> None:
        """One more; its number is its place in the list."""
        self.known.append(identity)
        self._write([identity])

    def move(self, path: Path) -> None:
        """The same, for another kernel."""
        self._path = path
        self._write(self.known)

    def _write(self, identities: list[bytes]) -> None:
        with contextlib.suppress(OSError), open(self._path, "a") as file:  # a full disk
            file.writelines(identity.hex() + "\n" for identity in identities)

    def _read(self) -> list[bytes]:
        try:
            return [bytes.fromhex(line) for line in self._path.read_text().splitlines()]
        except (OSError, ValueError):
            return []


class Delivered:
    """`counts` as they were found, `save` at every message, `forget` when the kernel is let go."""

    def __init__(self, path: Path) -> None:
        self._clients: dict[int, Clients] = {}
        self._open(path)
        counts = list(_LAYOUT.unpack_from(self._map))
        self.counts = counts if any(counts) else None

    @property
    def kernel_id(self) -> str:
        """Whose counts these are."""
        return self._path.name

    def save(self, counts: list[int]) -> None:
        """Per lane, how many messages were passed on."""
        _LAYOUT.pack_into(self._map, 0, *counts)

    def clients(self, index: int) -> Clients:
        """Those of the front end with this number."""
        return self._clients.setdefault(index, Clients(self._clients_path(index)))

    @property
    def front_ends(self) -> list[int]:
        """The numbers of those that the kernel has, or had when the hub was killed."""
        names = [path.name.split(".")[-2] for path in self._clients_paths()]
        return sorted(int(name) for name in names if name.isdecimal())

    def left(self, index: int) -> None:
        """The kernel no longer has this front end."""
        self._clients.pop(index, None)
        self._clients_path(index).unlink(missing_ok=True)

    def follow(self, kernel_id: str) -> None:
        """The front ends have another kernel now, of which nothing was passed on yet; their clients stay."""
        self.forget()
        self._open(self._path.with_name(kernel_id))
        self.save([0 for _ in Lane])
        for index, clients in self._clients.items():
            self._clients_path(index).unlink(missing_ok=True)
            clients.move(self._clients_path(index))

    def close(self) -> None:
        """The file stays, for whoever comes after us."""
        self._map.close()

    def forget(self) -> None:
        """Nobody will come after us."""
        self.close()
        for path in (self._path, *self._clients_paths()):
            path.unlink(missing_ok=True)

    def _open(self, path: Path) -> None:
        self._path = path
        try:
            self._map = _mapped(path)
        except OSError:  # a full disk: then the next hub does not know
            self._map = mmap.mmap(-1, _LAYOUT.size)

    def _clients_paths(self) -> list[Path]:
        return list(self._path.parent.glob(f"{self._path.name}.*.clients"))

    def _clients_path(self, index: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{index}.clients")


def _mapped(path: Path) -> mmap.mmap:
    """The disk's room is taken now: whoever writes to a mapped file for which there is none is killed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    try:
        if os.fstat(fd).st_size < _LAYOUT.size:
            os.write(fd, bytes(_LAYOUT.size))
        return mmap.mmap(fd, _LAYOUT.size)
    finally:
        os.close(fd)  # the map has its own
