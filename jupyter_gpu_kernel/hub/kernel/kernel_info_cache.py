"""The kernel_info replies of a node's kernels, kept in files, so that the placeholder of the next kernel has one.

A cache: if it is lost or broken, a front end waits a second longer.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path


class KernelInfoCache:
    """Contents of kernel_info replies (JSON bytes) by node and Python, one file each under `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, bytes] = {}

    def get(self, node: str, python: str) -> bytes | None:
        """Return the reply of the last kernel there."""
        name = _name(node, python)
        if name not in self._known:
            with contextlib.suppress(OSError, ValueError):
                data = (self._folder / name).read_bytes()
                json.loads(data)
                self._known[name] = data
        return self._known.get(name)

    def put(self, node: str, python: str, content: bytes) -> None:
        """Keep the reply of a kernel there."""
        name = _name(node, python)
        if self._known.get(name) == content:
            return
        self._known[name] = content
        with contextlib.suppress(OSError):  # a full disk: then the next hub does not know it
            self._folder.mkdir(mode=0o700, exist_ok=True)
            new = self._folder / (name + ".new")
            new.write_bytes(content)
            os.replace(new, self._folder / name)


def recall(
    infos: KernelInfoCache | None, node: str, python: str
) -> tuple[bytes | None, Callable[[bytes], None]]:
    """Return the reply of the last kernel of this node and Python, and the function that keeps a newer one."""
    if infos is None:
        return None, lambda content: None
    return infos.get(node, python), functools.partial(infos.put, node, python)


def _name(node: str, python: str) -> str:
    return hashlib.sha256(f"{node}\n{python}".encode()).hexdigest()[:16] + ".json"
