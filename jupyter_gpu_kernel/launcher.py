"""The process of one front end: `launch`, which the argv of a kernelspec runs, and `attach`, the command.

A front end passes a connection file to `launch`; the hub serves its ports. `attach` writes a connection file itself.
The process does not exit while the kernel runs, whatever happens to the link, and exits when the kernel was shut down.
SIGINT interrupts the kernel (and ends `attach`). SIGTERM, or the end of the parent process, means that the front end
has left: the kernel stays.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir

from .errors import Cancelled, GpuKernelError, SettingsError
from .kernelspecs import read
from .page_sign_in import PageSignIn
from .program import ATTACH, notebook_path, running_command, server_kernel_id
from .served_kernel import ServedKernel, StartCall, new_connection
from .wire.files import create_file
from .wire.texts import with_program, wrapped

_PARENT_CHECK_INTERVAL = 1.0
_CALL_TIMEOUT = 10.0
_SIGN_IN_TIMEOUT = 50.0
"""Seconds after our start until which the user can sign in. VS Code, nbclient and papermill give up after 60."""
_FRONT_END_EXIT_TIMEOUT = 1.0
"""Seconds in which a front end that gets SIGTERM together with us, as at a logout, exits."""


def launch(kernel_json: str, connection_file: str) -> int:
    """Serve the connection file until the kernel ends (0, or 1 with one message) or the front end leaves (0)."""
    file = Path(connection_file)
    try:
        kernel_id = server_kernel_id(file)
        start = StartCall.of(
            read(kernel_json),
            running_command(),
            os.environ.pop(ATTACH, ""),
            notebook=notebook_path(),
            connection=_read_connection(file),
            kernel_id=kernel_id,
            front_end_kind="server" if kernel_id else "",
            parent=os.getppid(),
            started=file.stat().st_mtime,  # written just before this process was started
        )
        return _Launcher(start, _SIGNALS).run()
    except GpuKernelError as error:
        return _fail(str(error))


def attach(kernel_id: str, specs: list[dict[str, Any]], on_ready: Callable[[Path, str], None]) -> int:
    """Serve a new local front end on a running kernel, until the kernel ends (0, or 1 with one message) or Ctrl-C (0).

    `specs`: kernelspecs whose nodes may have the kernel. `on_ready(connection file, node)` is called once clients can
    connect.
    """
    arguments = {
        "kernel": kernel_id,
        "specs": specs,
        "label": "jupyter gpu-kernel attach",
        "front_end_kind": "other",
        "connection": new_connection(),
    }
    path = Path(jupyter_runtime_dir()) / f"gpu-kernel-{kernel_id}-{os.getpid()}.json"

    def started(answer: dict[str, Any]) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {**answer["connection"], "kernel_name": answer.get("name", "")}
        create_file(path, json.dumps(content).encode())
        on_ready(path, str(answer["node"]))

    signals = {**_SIGNALS, signal.SIGINT: "leave", signal.SIGTERM: "leave"}
    try:
        return _Launcher(StartCall("attach", arguments), signals, started).run()
    finally:
        path.unlink(missing_ok=True)


class _Launcher:
    """Signals, events of the hub, and answers all go through one queue to the main thread."""

    def __init__(
        self,
        start: StartCall,
        signals: dict[signal.Signals, str],
        on_started: Callable[[dict[str, Any]], None] = lambda answer: None,
    ) -> None:
        self._signals = signals
        self._on_started = on_started
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._kernel = ServedKernel(start, self._events.put)
        self._parent = os.getppid()
        # The next cell of its user restarts an ended kernel.
        self._at_server = start.arguments["front_end_kind"] == "server"
        self._shutdown_requested = self._kernel_ended = False
        self._login_deadline = time.monotonic() + _SIGN_IN_TIMEOUT

    def run(self) -> int:
        """Return the exit status."""
        for number, word in self._signals.items():
            signal.signal(number, lambda number, frame, word=word: self._events.put({"event": word}))  # type: ignore[misc]
        threading.Thread(target=self._start, name="start", daemon=True).start()
        status = None
        while status is None:
            status = self._handle(self._next_event())
        self._kernel.close()
        return status

    def _start(self) -> None:
        try:
            answer = self._answer_of_start()
        except GpuKernelError as error:
            return self._fail(error)
        self._kernel.started(answer)
        self._events.put({"event": "started", "answer": answer})
        self._events.put({**answer, "event": "kernel"})  # it may have ended before we knew its id

    def _answer_of_start(self) -> dict[str, Any]:
        """Start the kernel; if only the user can sign in, and a page of theirs asks them to, once they have done so."""
        client, op, arguments = self._kernel.connect(), self._kernel.op, self._kernel.arguments
        try:
            return dict(client.call(op, **arguments))
        except GpuKernelError as error:
            if op != "start" or not error.login:
                raise
            cancelled = Cancelled(error.hop)
            cancelled.fill_in("NAME", arguments["name"])
            what = {"name": arguments["name"], "node": error.hop, "notebook": arguments["notebook"]}
            with contextlib.closing(PageSignIn(lambda: self._fail(cancelled), what)) as request:
                if not request.is_shown():
                    raise
                wait = max(0.1, self._login_deadline - time.monotonic())
                return dict(client.call(op, login_wait=wait, **arguments))

    def _fail(self, error: GpuKernelError) -> None:
        self._events.put({"event": "failed", "why": str(error)})

    def _handle(self, event: dict[str, Any]) -> int | None:
        """The exit status, if this process is to end."""
        if event["event"] == "started":
            self._on_started(event["answer"])
        elif event["event"] == "interrupt":
            self._call("command", do="interrupt", more={})
        elif event["event"] == "leave":
            return 0
        elif event["event"] == "terminate":
            return self._on_sigterm()
        elif event["event"] == "failed":
            return _fail(event["why"])
        elif event["event"] == "gone":
            return _fail(f"{event['why']}\nThe kernel is still running: “jupyter gpu-kernel ps” shows it.")
        elif event["event"] == "shutdown":
            self._shutdown_requested = True
            return 0 if self._kernel_ended else None
        elif self._kernel.id:
            self._kernel_ended = event.get("state") == "ended" or event.get("link") == "lost"
            return self._on_kernel_end(event) if self._kernel_ended else None
        return None

    def _next_event(self) -> dict[str, Any]:
        while os.getppid() == self._parent:
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=_PARENT_CHECK_INTERVAL)
        return {"event": "leave"}

    def _on_sigterm(self) -> int:
        """Leave the kernel, or end it if this SIGTERM is the front end's request to end it.

        Most front ends end a kernel with SIGTERM. A server that exits sends it as well, and so does VS Code when a
        notebook is closed; then the kernel stays, and its notebook can return to it. If no notebook can return to it
        and the front end goes on, its user has ended the kernel.
        """
        answer = self._call("returns") or {"returns": True}
        deadline = time.monotonic() + _FRONT_END_EXIT_TIMEOUT
        while not answer["returns"] and os.getppid() == self._parent:
            if time.monotonic() > deadline:
                self._call("end", why="ended by its front end")
                break
            time.sleep(0.05)
        return 0

    def _on_kernel_end(self, event: dict[str, Any]) -> int | None:
        asked = event.get("asked")
        if asked == "restart":
            return 0  # the front end runs us again with the same connection file; the hub waits for that
        if self._at_server and not self._shutdown_requested:
            return None  # if we exited, the server would start a new kernel that nobody asked for
        self._call("end", why="its front end cannot restart it")
        message = f"the kernel ended: {event.get('cause') or '?'}\n{event.get('remedy') or ''}"
        return 0 if asked else _fail(message.strip())

    def _call(self, op: str, **arguments: Any) -> dict[str, Any] | None:
        if not self._kernel.id or (client := self._kernel.client) is None:
            return None  # not started yet
        with contextlib.suppress(GpuKernelError):  # the kernel is gone already
            return dict(client.call(op, kernel=self._kernel.id, timeout=_CALL_TIMEOUT, **arguments))
        return None


_SIGNALS = {signal.SIGINT: "interrupt", signal.SIGTERM: "terminate"}
if hasattr(signal, "SIGHUP"):
    _SIGNALS[signal.SIGHUP] = "leave"


def _fail(text: str) -> int:
    # VS Code joins the lines.
    sentences = text.replace("\n", ".\n").replace("..\n", ".\n").replace(":.\n", ":\n")
    text = wrapped(with_program(sentences, running_command()))
    with contextlib.suppress(OSError, AttributeError):  # a front end may have closed stderr, or passed none
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
            f"{path} is not a connection file", remedy="A front end passes a connection file with -f FILE."
        )
    ports = {name: connection.get(name, 0) for name in connection if name.endswith("_port")}
    wrong = [name for name, port in ports.items() if type(port) is not int or not 0 <= port < 65536]
    if wrong:
        raise SettingsError(
            f"the connection file {path} has no port number under {wrong[0]}",
            remedy="A port is a number from 1 to 65535; 0 means any free port.",
        )
    if connection.get("transport") == "ipc":  # a path, which must not depend on the current folder
        connection["ip"] = os.path.abspath(str(connection.get("ip", "")))
    return connection
