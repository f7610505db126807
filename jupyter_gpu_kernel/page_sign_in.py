"""Asks on the user's pages for a sign-in, so that the start of a kernel elsewhere can go on.

A request is a file in a folder that no other user can enter. Jupyter servers with our extension, and windows of VS Code
with ours, look for such files. No secret is in them: the user's answers go from the page to its server, and from there
to the hub.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .hub.paths import sign_in_folder
from .wire.files import replace_file

REQUEST, SHOWN, LOOKING = ".json", ".shown", ".looking"
"""The suffixes of files: a request, which goes when it is withdrawn or cancelled; the mark that a page shows it; the
mark of a server, or window, that looks for requests, which writes the mark each second."""
_LONGEST = {REQUEST: 60.0, SHOWN: 60.0, LOOKING: 10.0}
"""Seconds after which a file was left by a process that was killed."""
_SHOWN_WITHIN = 5.0
_INTERVAL = 0.1


class PageSignIn:
    """One request, to all pages. They show it until `close`."""

    def __init__(self, on_cancel: Callable[[], None], what: dict[str, Any]) -> None:
        """`on_cancel` is called, on some thread, when the user cancels the request. `what`: name, node and notebook."""
        self._on_cancel = on_cancel
        self._closed = False
        self._file = sign_in_folder() / f"{os.urandom(16).hex()}{REQUEST}"
        replace_file(self._file, json.dumps(what).encode())
        atexit.register(self.close)
        threading.Thread(target=self._watch, name="page sign-in", daemon=True).start()

    def is_shown(self) -> bool:
        """Return True as soon as a page shows the request; False if none does in time, or nobody looks for it."""
        deadline = time.monotonic() + _SHOWN_WITHIN
        while files(LOOKING) and time.monotonic() < deadline:
            if self._file.with_suffix(SHOWN).exists():
                return True
            time.sleep(_INTERVAL)
        return False

    def close(self) -> None:
        """Withdraw the request: pages stop showing it."""
        self._closed = True
        for suffix in (REQUEST, SHOWN):
            self._file.with_suffix(suffix).unlink(missing_ok=True)

    def _watch(self) -> None:
        while self._file.exists():
            time.sleep(_INTERVAL)
        if not self._closed:
            self._on_cancel()


def files(suffix: str) -> list[Path]:
    """Return the files with this suffix, the oldest first. Remove those that killed processes have left."""
    found: list[tuple[float, Path]] = []
    for file in sign_in_folder().glob(f"[!.]*{suffix}"):
        with contextlib.suppress(FileNotFoundError):  # it has just been removed
            written = file.stat().st_mtime
            if time.time() - written > _LONGEST[suffix]:
                file.unlink()
            else:
                found.append((written, file))
    return [file for _, file in sorted(found)]
