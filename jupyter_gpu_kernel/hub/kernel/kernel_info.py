"""The replies to kernel_info requests that the hub has seen, by node and Python, in files: a placeholder answers with
them until its own kernel has replied."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from pathlib import Path

from ...wire.files import replace_file
from ..background import DiskThread


class KernelInfoCache:
    """Contents of kernel_info replies (JSON bytes) by node and Python, one file each under `folder`, so that the
    placeholder of the next kernel has one. If a reply is lost, broken or not read yet, a front end waits a second
    longer."""

    def __init__(self, folder: Path, disk: DiskThread) -> None:
        self._folder = folder
        self._disk = disk
        self._known: dict[str, bytes] = {}
        disk.call(self._load)

    def get(self, node: str, python: str) -> bytes | None:
        """Return the reply of the last kernel there."""
        return self._known.get(_file_name(node, python))

    def put(self, node: str, python: str, content: bytes) -> None:
        """Keep the reply of a kernel there."""
        name = _file_name(node, python)
        if self._known.get(name) == content:
            return
        self._known[name] = content
        self._disk.call(functools.partial(self._write, name, content))

    # -------------------------------------------------------------------------- in the thread

    def _load(self) -> None:
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.json"):
                with contextlib.suppress(OSError, ValueError):
                    data = path.read_bytes()
                    json.loads(data)
                    self._known.setdefault(path.name, data)

    def _write(self, name: str, content: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk: then the next hub does not know it
            self._folder.mkdir(mode=0o700, exist_ok=True)
            replace_file(self._folder / name, content)


def _file_name(node: str, python: str) -> str:
    return hashlib.sha256(f"{node}\n{python}".encode()).hexdigest()[:16] + ".json"
