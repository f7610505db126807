"""Starts a keeper's process, and sends requests to a running keeper.

A started process receives the settings and the folder's lock over a socket in the kernel's folder. The settings may
hold secrets. As they and the lock pass over a socket, no other process inherits or sees them: a process that the user's
set-up lines leave running cannot hold the lock or keep a pipe open. Over the same socket the keeper reports that it
serves, or why it cannot.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional

from ...wire.runtime import Runtime
from ..kernel_settings import KernelSettings, settings_from
from ..system.agent_runtime import ChildProcess, listen, receive_descriptors, send_descriptors
from ..system.request_client import RequestClient

TIMEOUT = 5.0
"""Seconds a keeper has to reply."""
_SOCKET = "start"
_STARTED = b"begun"
_POLL_INTERVAL = 0.05
"""Seconds between two checks whether the started process has ended."""
LOG_TAIL = 2000
"""Bytes of the log that go into the error of a failed start."""


class KeeperTimeout(Exception):
    """There is a keeper, but it does not reply in time."""


def ask_keeper(path: str, request: Dict[str, Any], timeout: float = TIMEOUT) -> Optional[Dict[str, Any]]:
    """Return the reply of the keeper at this socket; None if there is none. KeeperTimeout after `timeout` seconds."""
    try:
        with contextlib.closing(RequestClient(path, "the keeper", timeout)) as keeper:
            return keeper.ask(request)
    # BlockingIOError: the socket's queue of connections is full.
    except (socket.timeout, TimeoutError, BlockingIOError):
        raise KeeperTimeout(f"the keeper did not answer within {timeout:g} s") from None
    except OSError:  # there is no keeper, or another program answers
        return None


class StartError(Exception):
    """The keeper did not start, for this reason. `status`: the exit status of a process that ended by itself."""

    def __init__(self, text: str, status: Optional[int] = None) -> None:
        super().__init__(text)
        self.status = status


class StartRequest(NamedTuple):
    """What the started process receives. `lock`: the descriptor of the folder's lock, which the keeper holds as long as
    it lives."""

    settings: KernelSettings
    lock: int
    sock: socket.socket

    def succeeded(self) -> None:
        """Report that the keeper serves. If the starter is gone, that does not matter."""
        self._report(_STARTED)

    def failed(self, reason: str) -> None:
        """Report why the keeper does not start."""
        self._report(reason.encode())

    def _report(self, data: bytes) -> None:
        with contextlib.suppress(OSError), self.sock:
            self.sock.sendall(data)


def start_keeper(
    runtime: Runtime,
    folder: Path,
    launch: Callable[[], ChildProcess],
    settings: KernelSettings,
    lock: int,
    timeout: float,
    on_connected: Callable[[], None] = lambda: None,
) -> None:
    """Launch a process that calls `receive_request`, and wait until its keeper serves.

    lock: The descriptor of the folder's lock, which the process gets: see StartRequest.
    on_connected: Called when the process has connected.

    Raises StartError if the keeper does not serve within `timeout` seconds; the launched process has ended then.
    """
    deadline = runtime.monotonic() + timeout
    path = folder / _SOCKET
    with listen(path, 1) as listener:
        try:
            process = launch()
            sock = _accept(runtime, listener, process, deadline)
        except OSError as error:
            raise StartError(f"the keeper cannot be started: {error}") from None
        finally:
            path.unlink()  # before the process continues: a set-up process starts a keeper at the same path
    try:
        on_connected()
        with sock:
            report = _exchange(sock, settings, lock, deadline - runtime.monotonic())
        if report != _STARTED:
            raise StartError(report.decode("utf-8", "replace") or "the keeper exited during its start")
    except BaseException:
        process.kill()
        raise
    finally:
        process.wait()


def receive_request(folder: Path) -> StartRequest:
    """Connect to the starter of this process, and receive its request.

    Raises OSError or ValueError if there is no starter.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(folder / _SOCKET))
    _, received, _ = receive_descriptors(sock, 1, 1)
    with sock.makefile("rb") as file:
        settings = settings_from(json.loads(file.read().decode()))
    return StartRequest(settings, received[0], sock)


def _accept(
    runtime: Runtime, listener: socket.socket, process: ChildProcess, deadline: float
) -> socket.socket:
    poller = select.poll()  # not `select`, which takes no descriptor above 1023
    poller.register(listener, select.POLLIN)
    try:
        while True:
            status = process.poll()
            if poller.poll(0 if status is not None else _POLL_INTERVAL * 1000):
                return listener.accept()[0]
            if status is not None:
                raise StartError(f"the keeper exited with status {status}", status)
            if runtime.monotonic() > deadline:
                raise StartError("the keeper did not start in time")
    except BaseException:
        process.kill()
        process.wait()
        raise


def _exchange(sock: socket.socket, settings: KernelSettings, lock: int, timeout: float) -> bytes:
    """Send the settings and the lock; return what the process reports."""
    sock.settimeout(max(0.1, timeout))
    try:
        send_descriptors(sock, b"\0", [lock])
        sock.sendall(json.dumps(settings.to_json()).encode())
        sock.shutdown(socket.SHUT_WR)
        with sock.makefile("rb") as file:
            return file.read(4 * LOG_TAIL)
    except OSError as error:
        raise StartError(f"the keeper did not report that it had started: {error}") from None
