"""What kernelspec argv runs: a front end gave us a connection file; the hub serves it. Thin, and
re-attachable.

It never exits while the kernel lives, whatever the link does; it exits when its kernel was shut down.
SIGINT is an interrupt; SIGTERM, a vanished parent or a closed pipe mean that the front end has left: the
kernel stays.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
from pathlib import Path
from typing import Any

from .client import HubClient
from .errors import GpuKernelError, SettingsError
from .kernelspecs import read

_PARENT_EVERY = 1.0


def launch(kernel_json: str, connection_file: str) -> int:
    """Serves the connection file until the kernel ends (0, or 1 with one message) or the front end leaves
    (0)."""
    try:
        spec = read(Path(kernel_json))
        connection = _read_connection(Path(connection_file))
        return _Launch().run(spec.name, spec.settings, connection)
    except GpuKernelError as error:
        sys.stderr.write(f"{error}\n")
        return 1


class _Launch:
    def __init__(self) -> None:
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._parent = os.getppid()
        self._kernel = ""

    def run(self, name: str, settings: dict[str, Any], connection: dict[str, Any]) -> int:
        for number, word in _SIGNALS.items():
            signal.signal(number, lambda number, frame, word=word: self._events.put({"event": word}))  # type: ignore[misc]
        with HubClient(on_event=self._events.put) as client:
            started = client.call(
                "start",
                settings=settings,
                name=name,
                notebook=os.environ.get("JPY_SESSION_NAME", ""),
                connection=connection,
            )
            self._kernel = str(started["id"])
            return self._serve(client)

    def _serve(self, client: HubClient) -> int:
        while True:
            event = self._next()
            if event["event"] == "interrupt":
                client.call("command", kernel=self._kernel, do="interrupt", more={}, timeout=10)
            elif event["event"] == "leave":
                return 0
            elif event["event"] == "gone":
                sys.stderr.write("the local hub ended; the kernel lives on (jupyter gpu-kernel ps)\n")
                return 1
            elif event.get("state") == "ended" or event.get("link") == "lost":
                return self._ended(client, event)

    def _next(self) -> dict[str, Any]:
        while True:
            try:
                return self._events.get(timeout=_PARENT_EVERY)
            except queue.Empty:
                if os.getppid() != self._parent:
                    return {"event": "leave"}

    def _ended(self, client: HubClient, event: dict[str, Any]) -> int:
        asked = event.get("asked")
        if asked == "restart":
            return 0  # the front end starts us again with the same file; the hub waits for that
        if not asked:
            client.call(
                "command", kernel=self._kernel, do="stop", more={"why": "its front end cannot restart it"}
            )
        client.call("release", kernel=self._kernel, timeout=10)
        if asked:
            return 0
        sys.stderr.write(f"the kernel ended: {event.get('cause', '?')}\n")
        return 1


_SIGNALS = {signal.SIGINT: "interrupt", signal.SIGTERM: "leave"}
if hasattr(signal, "SIGHUP"):
    _SIGNALS[signal.SIGHUP] = "leave"


def _read_connection(path: Path) -> dict[str, Any]:
    try:
        connection = json.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"the connection file {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise SettingsError(f"the connection file {path} is not JSON") from None
    if not isinstance(connection, dict) or "key" not in connection:
        raise SettingsError(
            f"{path} is no connection file", remedy="It is what a front end passes as -f FILE."
        )
    return connection
