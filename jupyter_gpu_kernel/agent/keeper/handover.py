"""How a keeper gets what it starts from: over a socket in the kernel's folder, from the process that starts it.

The socket carries the settings, which may hold secrets, and the folder's lock; back comes the word that the keeper
serves. None of this is inherited by or visible to other processes, so nothing that the user's set-up lines leave
running can hold a lock or keep a pipe open.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional

_NAME = "start"
_BEGUN = b"begun"
_LOOK = 0.05
"""Seconds between two looks at whether the started process has ended."""
_PRINTED = 2000
"""Characters of what a failed start printed that go into its error."""


class StartError(Exception):
    """The keeper did not start; the text says why. `status`: with which the launched process ended by itself."""

    def __init__(self, text: str, status: Optional[int] = None) -> None:
        super().__init__(text)
        self.status = status


class Handed(NamedTuple):
    """What was handed over. `lock`: the folder's, which the keeper holds as long as it lives."""

    settings: Dict[str, Any]
    lock: int
    sock: socket.socket

    def begun(self) -> None:
        """Tells the giver that the keeper serves. A giver that is gone, with its connection, does not matter."""
        self._say(_BEGUN)

    def failed(self, text: str) -> None:
        """Tells the giver why the keeper does not start."""
        self._say(text.encode())

    def _say(self, data: bytes) -> None:
        with contextlib.suppress(OSError), self.sock:
            self.sock.sendall(data)


def hand_over(
    folder: Path,
    launch: Callable[[], subprocess.Popen[bytes]],
    settings: Dict[str, Any],
    lock: int,
    within: float,
    taken: Callable[[], None] = lambda: None,
) -> None:
    """Launches the process that is to `take`, gives it settings and lock, and waits until the keeper serves.

    `taken()` is called when the process has come for them. StartError if the keeper does not serve `within` that many
    seconds; then the launched process has ended.
    """
    deadline = time.monotonic() + within
    path = folder / _NAME
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        _listen(listener, path)
        try:
            process = launch()
            sock = _accepted(listener, process, deadline)
        except OSError as error:
            raise StartError(f"the keeper cannot be started: {error}") from None
        finally:
            path.unlink()  # before the other side knows more: it may hand over to a third one
    try:
        taken()
        with sock:
            said = _exchanged(sock, settings, lock, deadline)
        if said != _BEGUN:
            raise StartError(said.decode("utf-8", "replace") or "the keeper ended before it began")
    except BaseException:
        process.kill()
        raise
    finally:
        process.wait()


def take(folder: Path) -> Handed:
    """Comes for what the starter of this process hands over. OSError, ValueError: there is no such starter."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(folder / _NAME))
    room = socket.CMSG_SPACE(array.array("i").itemsize)
    _, ancillary, _, _ = sock.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
    locks = array.array("i")
    for _level, _kind, data in ancillary:
        locks.frombytes(data[: locks.itemsize])
    with sock.makefile("rb") as file:
        settings: Dict[str, Any] = json.loads(file.read().decode())
    return Handed(settings, locks[0], sock)


def printed(log: Path) -> str:
    """The end of what a start printed, as text without control characters."""
    try:
        with open(str(log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4 * _PRINTED))
            text = file.read(4 * _PRINTED).decode("utf-8", "replace")
    except OSError:
        return ""
    return "".join(one for one in text if one.isprintable() or one in "\n\t").strip()[-_PRINTED:]


def _listen(listener: socket.socket, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # else it is left from a starter that was killed
        path.unlink()
    listener.bind(str(path))
    listener.listen(1)


def _accepted(listener: socket.socket, process: subprocess.Popen[bytes], deadline: float) -> socket.socket:
    try:
        while True:
            ended = process.poll()
            if select.select([listener], [], [], 0 if ended is not None else _LOOK)[0]:
                return listener.accept()[0]
            if ended is not None:
                raise StartError(f"the keeper ended with status {ended}", ended)
            if time.monotonic() > deadline:
                raise StartError("the keeper did not start in time")
    except BaseException:
        process.kill()
        process.wait()
        raise


def _exchanged(sock: socket.socket, settings: Dict[str, Any], lock: int, deadline: float) -> bytes:
    sock.settimeout(max(0.1, deadline - time.monotonic()))
    try:
        sock.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [lock]))])
        sock.sendall(json.dumps(settings).encode())
        sock.shutdown(socket.SHUT_WR)
        with sock.makefile("rb") as file:
            return file.read(4 * _PRINTED)
    except OSError as error:
        raise StartError(f"the keeper does not say that it has begun: {error}") from None
