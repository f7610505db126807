"""Actions on the demo in JupyterLab, on request: cut the link, send SIGTERM, restart the server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from ..errors import GpuKernelError
from .cluster import processes
from .control import Say
from .setup import Demo

_LONGEST = 60.0  # seconds


class Actions:
    """`handle` runs one request. It reports to its caller and to the demo's terminal."""

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
                tell(f"{request!r} is not possible: give a number of seconds up to {_LONGEST:.0f}.")

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
    return seconds if 0 < seconds <= _LONGEST else 0.0
