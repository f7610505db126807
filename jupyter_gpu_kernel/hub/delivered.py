"""How much of each kernel's messages was passed on to its front end, and who its clients are: in files, so that a
killed hub's successor goes on exactly there.

The counts are mapped: a write is a write to memory, and survives the process, though not the machine.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from pathlib import Path

from ..wire.messages import Lane

_LAYOUT = struct.Struct(f"<{len(Lane)}Q")


class Delivered:
    """`counts` as they were found, `save` at every message, `forget` when the kernel is let go."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 (closed by `close`)
        self._file.truncate(_LAYOUT.size)
        self._map = mmap.mmap(self._file.fileno(), _LAYOUT.size)
        counts = list(_LAYOUT.unpack_from(self._map))
        self.counts = counts if any(counts) else None
        self._clients = path.with_name(path.name + ".clients")
        self.clients = self._read_clients()

    def save(self, counts: list[int]) -> None:
        """Per lane, how many messages were passed on."""
        _LAYOUT.pack_into(self._map, 0, *counts)

    def add_client(self, identity: bytes) -> None:
        """One more; its number is its place in the list."""
        with contextlib.suppress(OSError), open(self._clients, "a") as file:  # a full disk
            file.write(identity.hex() + "\n")

    def _read_clients(self) -> list[bytes]:
        try:
            return [bytes.fromhex(line) for line in self._clients.read_text().splitlines()]
        except (OSError, ValueError):
            return []

    def close(self) -> None:
        """The file stays, for whoever comes after us."""
        self._map.close()
        self._file.close()

    def forget(self) -> None:
        """Nobody will come after us."""
        self.close()
        for path in (self._path, self._clients):
            path.unlink(missing_ok=True)
