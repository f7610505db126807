"""Functions with which a notebook controls the demo in JupyterLab, and the socket between them and the demo.

The socket is in the demo's folder, which no other user can enter. A request is one line, and the answer is lines of
text until the end of the stream. This module does not know what the requests do.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from .cluster import MARK

Say = Callable[[str], None]
_SOCKET = "control"
_LONGEST_REQUEST = 100  # bytes


def cut(seconds: float = 10) -> None:
    """Cut the link between this machine and the practice cluster."""
    _request(f"cut {seconds}")


def sigterm() -> None:
    """Send SIGTERM to the kernels on the practice work node."""
    _request("sigterm")


def restart_server(seconds: float = 5) -> None:
    """Stop the Jupyter server, and with it the kernel of the calling cell; start the server again later."""
    _request(f"restart {seconds}")


def _request(line: str) -> None:
    """Send a request, and print the answer as it arrives."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(Path(os.environ[MARK], _SOCKET)))
        sock.sendall(f"{line}\n".encode())
        with sock.makefile(encoding="utf-8") as answer:
            for text in answer:
                print(text, end="", flush=True)


class Control:
    """The demo's end of the socket in `folder`. `handle(request, say)` is called on one thread per request."""

    def __init__(self, folder: Path, handle: Callable[[str, Say], None]) -> None:
        self._handle = handle
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _SOCKET))
        self._listener.listen()
        threading.Thread(target=self._accept, name="demo control", daemon=True).start()

    def close(self) -> None:
        """Accept no more requests."""
        with contextlib.suppress(OSError):  # not every system can shut down a listening socket
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(sock,), name="demo request", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        def say(text: str) -> None:
            with contextlib.suppress(OSError):  # the cell was interrupted
                sock.sendall(f"{text}\n".encode())

        with sock, contextlib.suppress(OSError), sock.makefile("rb") as requests:
            self._handle(requests.readline(_LONGEST_REQUEST).decode(errors="replace").strip(), say)
