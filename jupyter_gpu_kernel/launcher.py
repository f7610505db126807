"""What kernelspec argv runs: a front end gave us a connection file; the hub serves it. And `attach`, which makes one.

Thin, and re-attachable: it never exits while the kernel lives, whatever the link does; it exits when its kernel was
shut down. SIGINT is an interrupt (of `attach` an end); SIGTERM or a vanished parent mean that the front end has left:
the kernel stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir

from . import server_parent
from .errors import GpuKernelError, SettingsError
from .kernelspecs import read
from .served_kernel import ServedKernel
from .wire.texts import as_typed, with_program

_PARENT_EVERY = 1.0
_ANSWER_WITHIN = 10.0
_EXITS_WITHIN = 1.0
"""Seconds in which a front end that gets SIGTERM together with us, as at a logout, is gone."""


def launch(kernel_json: str, connection_file: str) -> int:
    """Serves the file until the kernel ends (0, or 1 with one message) or the front end leaves (0)."""
    try:
        spec = read(Path(kernel_json))
        arguments: dict[str, Any] = {
            "settings": {**spec.settings, "program": _program()},
            "name": spec.name,
            "notebook": server_parent.notebook(),
            "connection": _read_connection(Path(connection_file)),
            "parent": os.getppid(),
        }
        if kernel_id := server_parent.kernel_id(Path(connection_file)):
            arguments.update(kernel_id=kernel_id, face="server")
        return _Launch("start", arguments, _SIGNALS).run()
    except GpuKernelError as error:
        return _fail(str(error))


def attach(kernel_id: str, specs: list[dict[str, Any]], say: Callable[[Path, str], None]) -> int:
    """A local front end on a running kernel, until that ends (0, or 1 with one message) or Ctrl-C (0).

    `specs`: ways to where it may be. `say(connection file, node)` is called once clients can come.
    """
    connection = {"transport": "tcp", "ip": "127.0.0.1", "signature_scheme": "hmac-sha256"}
    arguments = {
        "kernel": kernel_id,
        "specs": specs,
        "label": "jupyter gpu-kernel attach",
        "face": "other",
        "connection": {**connection, "key": uuid.uuid4().hex},
    }
    path = Path(jupyter_runtime_dir()) / f"gpu-kernel-{kernel_id}-{os.getpid()}.json"

    def started(answer: dict[str, Any]) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump({**answer["connection"], "kernel_name": answer.get("name", "")}, file)
        say(path, str(answer["node"]))

    try:
        return _Launch(
            "attach", arguments, {**_SIGNALS, signal.SIGINT: "leave", signal.SIGTERM: "leave"}, started
        ).run()
    finally:
        path.unlink(missing_ok=True)


class _Launch:
    """Everything that happens is an event for the main thread, which so is never away."""

    def __init__(
        self,
        op: str,
        arguments: dict[str, Any],
        signals: dict[signal.Signals, str],
        on_started: Callable[[dict[str, Any]], None] = lambda answer: None,
    ) -> None:
        self._op = op
        self._signals = signals
        self._on_started = on_started
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._kernel = ServedKernel(arguments, self._events.put)
        self._parent = os.getppid()
        self._revives = (
            arguments.get("face") == "server"
        )  # a kernel that ended starts anew with its user's next cell
        self._shut_down = self._over = False

    def run(self) -> int:
        for number, word in self._signals.items():
            signal.signal(number, lambda number, frame, word=word: self._events.put({"event": word}))  # type: ignore[misc]
        threading.Thread(target=self._start, name="start", daemon=True).start()
        code = None
        while code is None:
            code = self._heard(self._next())
        self._kernel.close()
        return code

    def _start(self) -> None:
        try:
            answer = self._kernel.connect().call(self._op, **self._kernel.arguments)
        except GpuKernelError as error:
            return self._events.put({"event": "failed", "why": str(error)})
        self._kernel.started(answer)
        self._events.put({"event": "started", "answer": answer})
        self._events.put({**answer, "event": "kernel"})  # it may have ended before we knew its id

    def _heard(self, event: dict[str, Any]) -> int | None:
        """The exit code, if this is the end."""
        if event["event"] == "started":
            self._on_started(event["answer"])
        elif event["event"] == "interrupt":
            self._ask("command", do="interrupt", more={})
        elif event["event"] == "leave":
            return 0
        elif event["event"] == "terminate":
            return self._terminated()
        elif event["event"] == "failed":
            return _fail(event["why"])
        elif event["event"] == "gone":
            return _fail(f"{event['why']}\nThe kernel lives on: jupyter gpu-kernel ps")
        elif event["event"] == "shutdown":
            self._shut_down = True
            return 0 if self._over else None
        elif self._kernel.id:
            self._over = event.get("state") == "ended" or event.get("link") == "lost"
            return self._ended(event) if self._over else None
        return None

    def _next(self) -> dict[str, Any]:
        while os.getppid() == self._parent:
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=_PARENT_EVERY)
        return {"event": "leave"}

    def _terminated(self) -> int:
        """Most front ends end a kernel so, and a server's exit or VS Code may mean that it is to stay.

        Where no notebook can come back to it, and the front end lives on, its user has ended the kernel.
        """
        answer = self._ask("returns") or {"returns": True}
        deadline = time.monotonic() + _EXITS_WITHIN
        while not answer["returns"] and os.getppid() == self._parent:
            if time.monotonic() > deadline:
                self._ask("end", why="ended by its front end")
                break
            time.sleep(0.05)
        return 0

    def _ended(self, event: dict[str, Any]) -> int | None:
        asked = event.get("asked")
        if asked == "restart":
            return 0  # the front end starts us again with the same file; the hub waits for that
        if self._revives and not self._shut_down:
            return None  # a server would start a new kernel unasked if we ended
        self._ask("end", why="its front end cannot restart it")
        told = f"the kernel ended: {event.get('cause') or '?'}\n{event.get('remedy') or ''}"
        return 0 if asked else _fail(told.strip())

    def _ask(self, op: str, **arguments: Any) -> dict[str, Any] | None:
        if not self._kernel.id or (client := self._kernel.client) is None:
            return None  # not started yet
        with contextlib.suppress(GpuKernelError):  # it is gone already
            return dict(client.call(op, kernel=self._kernel.id, timeout=_ANSWER_WITHIN, **arguments))
        return None


_SIGNALS = {signal.SIGINT: "interrupt", signal.SIGTERM: "terminate"}
if hasattr(signal, "SIGHUP"):
    _SIGNALS[signal.SIGHUP] = "leave"


def _program() -> str:
    """This program as its user would type it: whoever uses VS Code may have no `jupyter` on PATH."""
    path = os.path.abspath(sys.argv[0])
    return as_typed([sys.executable, "-m", "jupyter_gpu_kernel.cli"] if path.endswith(".py") else [path])


def _fail(text: str) -> int:
    text = with_program(text, _program())
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
    ports = {name: connection.get(name, 0) for name in connection if name.endswith("_port")}
    wrong = [name for name, port in ports.items() if type(port) is not int or not 0 <= port < 65536]
    if wrong:
        raise SettingsError(
            f"the connection file {path} has no port number under {wrong[0]}",
            remedy="A port is a number from 1 to 65535; 0 is for any that is free.",
        )
    if connection.get("transport") == "ipc":  # a path, for the hub's process as well
        connection["ip"] = os.path.abspath(str(connection.get("ip", "")))
    return connection
