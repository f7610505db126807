"""Controls the demo in JupyterLab: functions for a notebook, the socket for their requests, and what these do.

The socket is in the demo's folder, which no other user can enter. A request is one line, and the answer is lines of
text until the end of the stream.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from ..errors import GpuKernelError
from .cluster import MARK, processes
from .setup import Demo

Say = Callable[[str], None]
_SOCKET = "control"
_LONGEST_REQUEST = 100  # bytes
_LONGEST_PAUSE = 60.0  # seconds


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


class Actions:
    """What is done: cut the link, send SIGTERM, restart the server. `handle` runs one request. It reports to its caller
    and to the demo's terminal."""

    def __init__(self, demo: Demo, restart: Callable[[float], None]) -> None:
        self._demo = demo
        self._restart_server = restart
        self._cutting = threading.Lock()  # held while the link is cut
        self._over = threading.Event()

    def handle(self, request: str, say: Say) -> None:
        """Run `cut SECONDS`, `sigterm` or `restart SECONDS`. Thread-safe."""

        def tell(text: str) -> None:
            self._demo.terminal.say("!", text)
            say(text)

        match request.split():
            case ["sigterm"]:
                self._sigterm(tell)
            case ["cut", text] if seconds := _seconds(text):
                self._cut(seconds, tell)
            case ["restart", text] if seconds := _seconds(text):
                self._restart(seconds, tell)
            case _:
                tell(f"{request!r} is not possible: give a number of seconds up to {_LONGEST_PAUSE:.0f}.")

    def end(self) -> None:
        """Restore the link now, and cut it no more."""
        self._over.set()
        with self._cutting:
            pass

    def _cut(self, seconds: float, tell: Say) -> None:
        with self._cutting:
            if self._over.is_set():
                return
            self._demo.cluster.cut()
            try:
                tell(f"The link is cut for {seconds:g} s. The kernel keeps running on the work node.")
                self._over.wait(seconds)
            finally:
                self._demo.cluster.start()
            tell("The link is restored.")

    def _sigterm(self, tell: Say) -> None:
        try:
            rows = self._demo.hub.call("ps", specs=self._demo.specs, timeout=30)
        except GpuKernelError as error:
            return tell(str(error))
        ours = processes(self._demo.cluster.folder)
        pids = [row["pid"] for row in rows if row.get("state") != "ended" and row.get("pid") in ours]
        for pid in pids:
            tell(f"kill -TERM {pid}")
            os.kill(pid, signal.SIGTERM)
        if not pids:
            tell("No kernel runs on the work node, or the link is cut. Run a cell of demo.ipynb first.")

    def _restart(self, seconds: float, tell: Say) -> None:
        tell(f"The Jupyter server stops now, and starts again in {seconds:g} s.")
        self._restart_server(seconds)


def _seconds(text: str) -> float:
    """A duration; 0.0 if the text is not a number, or too large."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if 0 < seconds <= _LONGEST_PAUSE else 0.0
