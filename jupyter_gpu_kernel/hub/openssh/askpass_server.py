"""The hub's end of SSH_ASKPASS: the socket or named pipe on which the questions of one ssh process arrive.

A socket is in a folder of the user's own, and a question must carry the token that only this ssh process was given.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from ..paths import control_folder
from . import askpass

ASKPASS = "jupyter-gpu-kernel-askpass"
"""The program that pip has made of `askpass.py`."""
_MAX_QUESTION = 64 * 1024  # bytes
_QUESTION_TIMEOUT = 10.0  # seconds in which a question must arrive
Answer = Callable[[str, str], "str | None"]


class Abandoned(Exception):
    """The attempt to connect ends. Until then ssh waits, since without an answer it would send an empty password."""


class AskpassServer:
    """The end of SSH_ASKPASS for one ssh process, whose environment needs the variables in `environment`.

    `program`: what ssh runs, `paths.installed_script(ASKPASS)`. ssh wants one file that the system can run, and on
    Windows only an .exe gets a prompt of the server unchanged. `answer(prompt, kind)` returns None to refuse, or raises
    Abandoned. `kind` is "" for a secret, "confirm" for yes or no, "none" for a mere notice.
    """

    def __init__(self, program: Path, answer: Answer) -> None:
        self._answer = answer
        self._token = secrets.token_hex(16)
        name = f"{secrets.token_hex(4)}a"
        self._address = rf"\\.\pipe\jgk-{name}" if sys.platform == "win32" else str(control_folder() / name)
        self._closed = threading.Event()
        self._listener = Listener(self._address, backlog=4)
        self.environment = {
            "SSH_ASKPASS": str(program),
            "SSH_ASKPASS_REQUIRE": "force",  # since OpenSSH 8.4; before that: no terminal, and
            "DISPLAY": os.environ.get("DISPLAY") or ":0",
            askpass.ADDRESS: self._address,
            askpass.TOKEN: self._token,
        }
        self._thread = threading.Thread(target=self._serve, name="askpass", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more questions. ssh has ended."""
        self._closed.set()
        with contextlib.suppress(OSError, EOFError):  # wakes the thread, which waits for a question
            Client(self._address).close()
        self._thread.join()

    def _serve(self) -> None:
        with self._listener:
            while not self._closed.is_set():
                with contextlib.suppress(OSError):  # the helper has ended already
                    connection = self._listener.accept()
                    threading.Thread(
                        target=self._reply, args=(connection,), name="askpass", daemon=True
                    ).start()

    def _reply(self, connection: Connection[Any, Any]) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError), connection:
            if not connection.poll(_QUESTION_TIMEOUT):
                return
            token, kind, prompt = json.loads(connection.recv_bytes(_MAX_QUESTION))
            if not hmac.compare_digest(str(token).encode(), self._token.encode()):
                return
            try:
                answer = self._answer(str(prompt), str(kind))
            except Abandoned:
                self._closed.wait()
                return
            if answer is not None:
                connection.send_bytes(answer.encode())
