"""What is remembered of a node's kernels from one time to the next: their kernel_info, so that the next one can be
ready before it is there. A cache: lost or broken, it costs a second of waiting and nothing else.
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
    """kernel_info contents (JSON bytes) by way and Python, one file each under `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, bytes] = {}

    def get(self, way: str, python: str) -> bytes | None:
        """What the last kernel there said of itself."""
        name = _name(way, python)
        if name not in self._known:
            with contextlib.suppress(OSError, ValueError):
                data = (self._folder / name).read_bytes()
                json.loads(data)
                self._known[name] = data
        return self._known.get(name)

    def put(self, way: str, python: str, content: bytes) -> None:
        """What a kernel there just said of itself."""
        name = _name(way, python)
        if self._known.get(name) == content:
            return
        self._known[name] = content
        with contextlib.suppress(OSError):  # a full disk: then the next hub does not know it
            self._folder.mkdir(mode=0o700, exist_ok=True)
            new = self._folder / (name + ".new")
            new.write_bytes(content)
            os.replace(new, self._folder / name)


def recall(
    infos: KernelInfoCache | None, way: str, python: str
) -> tuple[bytes | None, Callable[[bytes], None]]:
    """What is known of kernels of this Python on this way, and what is to be called with news of them."""
    if infos is None:
        return None, lambda content: None
    return infos.get(way, python), functools.partial(infos.put, way, python)


def _name(way: str, python: str) -> str:
    return hashlib.sha256(f"{way}\n{python}".encode()).hexdigest()[:16] + ".json"
