"""The hub's end of SSH_ASKPASS: one Unix socket per hop, on which the questions of that hop's ssh process arrive.

The socket is in a folder of the user's own, and a question must carry the token that only this ssh process was given.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import shlex
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ...wire.files import replace_file
from ..paths import data_folder
from . import askpass

_MAX_QUESTION = 64 * 1024  # bytes
_QUESTION_TIMEOUT = 10.0  # seconds in which a question must arrive
Answer = Callable[[str, str, bool], "str | None"]


class Abandoned(Exception):
    """The attempt to connect ends. Until then ssh waits, since without an answer it would send an empty password."""


class AskpassServer:
    """`environment` is what ssh needs to ask here.

    `answer(prompt, kind, own)` returns None to refuse, or raises Abandoned. `kind` is "" for a secret, "confirm" for
    yes or no, "none" for a mere notice; `own`: the hop's ssh process asks, and not another one that it has started.
    """

    def __init__(self, folder: Path, name: str, token: str, answer: Answer) -> None:
        self._answer = answer
        self._token = token
        self._path = folder / name
        self._closed = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen(4)
        self.environment = {
            "SSH_ASKPASS": str(_program(folder)),
            "SSH_ASKPASS_REQUIRE": "force",  # since OpenSSH 8.4; before that: no terminal, and
            "DISPLAY": os.environ.get("DISPLAY") or ":0",
            askpass.SOCKET: str(self._path),
            askpass.TOKEN: token,
        }
        threading.Thread(target=self._serve, name="askpass", daemon=True).start()

    def close(self) -> None:
        """Take no more questions. ssh has ended."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._reply, args=(connection,), name="askpass", daemon=True).start()

    def _reply(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection:
            connection.settimeout(_QUESTION_TIMEOUT)
            data = b""
            while len(data) <= _MAX_QUESTION and (more := connection.recv(65536)):
                data += more
            token, kind, prompt, own = json.loads(data)
            if not hmac.compare_digest(str(token).encode(), self._token.encode()):
                return
            try:
                answer = self._answer(str(prompt), str(kind), own is True)
            except Abandoned:
                self._closed.wait()
                return
            if answer is not None:
                connection.sendall(b"+" + answer.encode())


def _program(folder: Path) -> Path:
    """Return the program for SSH_ASKPASS, which must be one file that the system can run: some temporary folders
    permit no programs."""
    words = [sys.executable, "-I", "-S", str(Path(askpass.__file__).resolve())]
    text = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
    file = folder / "askpass"
    for place in (folder, data_folder()):
        file = place / "askpass"
        if not file.exists() or file.read_text() != text:
            replace_file(file, text.encode(), 0o700)
        if os.access(file, os.X_OK):
            break
    return file
