"""What kernelspec argv runs: a front end gave us a connection file; the hub serves it. Thin, and re-attachable.

It never exits while the kernel lives, whatever the link does; it exits when its kernel was shut down. SIGINT is an
interrupt; SIGTERM or a vanished parent mean that the front end has left: the kernel stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from .errors import GpuKernelError, SettingsError
from .kernelspecs import read
from .served import ServedKernel

_PARENT_EVERY = 1.0
_ANSWER_WITHIN = 10.0


def launch(kernel_json: str, connection_file: str) -> int:
    """Serves the file until the kernel ends (0, or 1 with one message) or the front end leaves (0)."""
    try:
        spec = read(Path(kernel_json))
        connection = _read_connection(Path(connection_file))
        notebook = os.environ.get("JPY_SESSION_NAME", "")
        return _Launch(
            {
                "settings": spec.settings,
                "name": spec.name,
                "notebook": notebook,
                "connection": connection,
                "parent": os.getppid(),
            }
        ).run()
    except GpuKernelError as error:
        return _fail(str(error))


class _Launch:
    """Everything that happens is an event for the main thread, which so is never away."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._kernel = ServedKernel(arguments, self._events.put)
        self._parent = os.getppid()

    def run(self) -> int:
        for number, word in _SIGNALS.items():
            signal.signal(number, lambda number, frame, word=word: self._events.put({"event": word}))  # type: ignore[misc]
        threading.Thread(target=self._start, name="start", daemon=True).start()
        code = None
        while code is None:
            code = self._heard(self._next())
        self._kernel.close()
        return code

    def _start(self) -> None:
        try:
            answer = self._kernel.connect().call("start", **self._kernel.arguments)
        except GpuKernelError as error:
            return self._events.put({"event": "failed", "why": str(error)})
        self._kernel.started(answer)
        self._events.put({**answer, "event": "kernel"})  # it may have ended before we knew its id

    def _heard(self, event: dict[str, Any]) -> int | None:
        """The exit code, if this is the end."""
        if event["event"] == "interrupt":
            self._ask("command", do="interrupt", more={})
        elif event["event"] == "leave":
            return 0
        elif event["event"] == "failed":
            return _fail(event["why"])
        elif event["event"] == "gone":
            return _fail(f"{event['why']}\nThe kernel lives on: jupyter gpu-kernel ps")
        elif self._kernel.id and (event.get("state") == "ended" or event.get("link") == "lost"):
            return self._ended(event)
        return None

    def _next(self) -> dict[str, Any]:
        while os.getppid() == self._parent:
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=_PARENT_EVERY)
        return {"event": "leave"}

    def _ended(self, event: dict[str, Any]) -> int:
        asked = event.get("asked")
        if asked == "restart":
            return 0  # the front end starts us again with the same file; the hub waits for that
        self._ask("end", why="its front end cannot restart it")
        told = f"the kernel ended: {event.get('cause', '?')}\n{event.get('remedy') or ''}"
        return 0 if asked else _fail(told.strip())

    def _ask(self, op: str, **arguments: Any) -> None:
        if not self._kernel.id or (client := self._kernel.client) is None:
            return  # not started yet
        with contextlib.suppress(GpuKernelError):  # it is gone already
            client.call(op, kernel=self._kernel.id, timeout=_ANSWER_WITHIN, **arguments)


_SIGNALS = {signal.SIGINT: "interrupt", signal.SIGTERM: "leave"}
if hasattr(signal, "SIGHUP"):
    _SIGNALS[signal.SIGHUP] = "leave"


def _fail(text: str) -> int:
    with contextlib.suppress(OSError, AttributeError):  # a front end may have closed it, or given none
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    return 1


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
