"""Asks the pages of the user's Jupyter servers to sign in, so that the start of a kernel elsewhere can go on.

Each server with our extension listens for that (`server/questions/sign_in_requests.py`). No secret passes here: the
user's answers go from the page to the server, and from there to the hub.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .client import HubClient
from .errors import GpuKernelError, HubError
from .hub.paths import page_servers

PAGE_TIMEOUT = 5.0
"""Seconds for a page to show the request."""


class PageSignIn:
    """One request, in all pages. They show it until `close`."""

    def __init__(self, on_cancel: Callable[[], None], what: dict[str, Any]) -> None:
        """`on_cancel` is called, on some thread, when the user cancels the request. `what`: name, node and notebook."""
        self._on_cancel = on_cancel
        self._what = what
        self._shown: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._clients: list[HubClient] = []
        self._closed = False
        self._lock = threading.Lock()
        self._servers = page_servers()
        for server in self._servers:  # on threads, as a server may hang
            threading.Thread(target=self._ask, args=server, name="page sign-in", daemon=True).start()

    def is_shown(self) -> bool:
        """Return True as soon as a page shows the request; False if no page does."""
        deadline = time.monotonic() + PAGE_TIMEOUT
        for _ in self._servers:
            try:
                if self._shown.get(timeout=max(0.0, deadline - time.monotonic())):
                    return True
            except queue.Empty:
                return False
        return False

    def close(self) -> None:
        """Withdraw the request: pages stop showing it."""
        with self._lock:
            self._closed = True
            clients = list(self._clients)
        for client in clients:
            client.close()

    def _ask(self, address: str, key_file: Path) -> None:
        # That server ends, has no page, or we do not ask any more.
        with contextlib.suppress(GpuKernelError, OSError):
            client = _connected(address, key_file)
            with self._lock:
                self._clients.append(client)
            if self._closed:
                client.close()
            client.call("sign_in", progress=lambda _: self._shown.put(True), **self._what)
            self._on_cancel()
        self._shown.put(False)


def _connected(address: str, key_file: Path) -> HubClient:
    """Connect to a server. If it was killed, remove what it has left, and raise HubError."""
    try:
        return HubClient(at=(address, key_file.read_bytes()))
    except HubError:
        key_file.unlink(missing_ok=True)
        key_file.with_suffix("").unlink(missing_ok=True)  # its socket, which is no file on Windows
        raise
