"""Answers the questions of ssh processes: shows them to the user with their speaker, and passes the answer on.

A question is ssh's own only if it cannot be the server's: since OpenSSH 8.5 the server's begin with “(user@host)”. Of
an older ssh every question is shown as the server's.

Which process asks is known from the logs: an ssh logs that it is about to ask. Another program that ssh has started,
such as the ssh of a ProxyCommand, asks for another machine, and never in the name of a hop.

The questions of one ssh process arrive on a socket (`AskpassServer`) or named pipe. The socket is in a folder of the
user's own, and a question must carry the token that only this ssh process was given.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from ...errors import ConnectError
from ..paths import control_folder
from ..sanitize import one_line
from ..ssh import Asker, Secret, hostkeys
from ..ssh.config.route import Hop
from ..ssh.sign_in.auth import question
from . import askpass
from .process import HOST_KEY, READY, SSHLog

ASKPASS = "jupyter-gpu-kernel-askpass"
"""The program that pip has made of `askpass.py`."""
_MAX_QUESTION = 64 * 1024  # bytes
_QUESTION_TIMEOUT = 10.0  # seconds in which a question must arrive
Answer = Callable[[str, str], "str | None"]
_LOG_WAIT = 0.5  # seconds for the lines before a question to be read
_LOG_INTERVAL = 0.02  # seconds between two looks, if several processes may be the one that asks
_MARKED = (8, 5)  # the first version that marks the server's questions
_SERVER = re.compile(r"\([^()]*@[^()]*\) ?")
_PASSPHRASE = re.compile(r"Enter passphrase for (?:key )?'?(.*?)'?: ?")
_PASSWORD = re.compile(r"\S*'s password: ?")
_ANOTHER = "A program of ProxyCommand"
_OWN = (
    *("Enter PIN for ", "Enter passphrase for "),
    *("Confirm user presence for key", "Enter new ", "Retype "),
)


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


@dataclass(eq=False)
class Questions:
    """The questions of the ssh process of one hop."""

    hop: Hop
    version: tuple[int, int]
    """The version of ssh."""
    ask: Asker | None
    log: SSHLog
    progress: Callable[[str, str], None]
    trust_file: Path
    """Where ssh adds a host key that the user confirms."""
    asked: list[str] = field(default_factory=list, init=False)
    """The questions that the user has answered."""
    own_questions: int = field(default=0, init=False)
    """The number of the process's own questions, as the log counts them."""
    host_declined: bool = field(default=False, init=False)
    """Whether the user was asked about the host key, and did not confirm it."""
    problem: Exception | None = field(default=None, init=False)
    """Why the attempt to connect has to end; None if the attempt goes on."""

    @property
    def signed_in(self) -> bool:
        """Whether ssh has signed in to the hop."""
        return self.log.last_step >= READY

    @property
    def typed(self) -> bool:
        """Whether the user has answered a question."""
        return bool(self.asked)

    def asks(self, seconds: float) -> bool:
        """Whether the process has logged, within so many seconds, that it is about to ask once more."""
        return self.log.wait_for_questions(self.own_questions + 1, seconds)

    def answer(self, prompt: str, kind: str, own: bool) -> str | None:
        """Return the answer, or None to refuse. Raises Abandoned. `own`: the hop's ssh process asks."""
        if kind != "none":
            self.own_questions += own
            if (own and self.log.step == HOST_KEY) or self._is_about_host(prompt):
                return self._confirm_host(prompt)
        if kind == "none":
            self.progress(self.hop.label, one_line(prompt))
        if kind in ("none", "confirm") or self.ask is None:
            return None
        with self._abandoning():
            shown, secret = self._shown(prompt) if own else _of_another(prompt)
            self.asked.append(prompt)
            return self.ask.secret(self.hop.label, shown, secret)

    def _is_about_host(self, prompt: str) -> bool:
        """Whether an ssh asks about a host key, although its log, which was read too late, does not say so. An old ssh
        that signs in may pass on such words of the server."""
        if "(yes/no" not in prompt or _SERVER.match(prompt):
            return False
        return self.version >= _MARKED or self.log.step <= HOST_KEY

    def _confirm_host(self, prompt: str) -> str:
        """ssh asks whether the host key is right: it is if the user confirms the key that ssh has logged."""
        key = self.log.host_key
        if self.ask is None or key is None or key.fingerprint not in prompt:
            return "no"
        with self._abandoning():
            self.host_declined = not self.ask.confirm_host(self.hop.label, key.fingerprint, key.type)
            if not self.host_declined:  # ssh itself would make a file that others can read
                self._make_trust_file()
        return "no" if self.host_declined else "yes"

    def _make_trust_file(self) -> None:
        try:
            hostkeys.append(self.trust_file, b"")
        except OSError as error:
            cause = f"its host key cannot be stored in {self.trust_file}: {error.strerror}"
            remedy = "Check the disk and the permissions of this file, and try again."
            raise ConnectError(cause, hop=self.hop.label, remedy=remedy) from error

    @contextlib.contextmanager
    def _abandoning(self) -> Iterator[None]:
        """Raise Abandoned for an exception in this block, such as the user's wish to end the attempt: the caller of
        `connect` gets that exception."""
        try:
            yield
        except Exception as error:
            self.problem = error
            self.log.end()
            raise Abandoned from error

    def _shown(self, prompt: str) -> tuple[str, Secret]:
        repeated = self.asked[-1:] == [prompt]
        prefix = "Not accepted. " if repeated else ""
        if self.version >= _MARKED and not _SERVER.match(prompt):
            if found := _PASSPHRASE.fullmatch(prompt):
                shown = f"{'Wrong passphrase. ' * repeated}Passphrase of {one_line(found[1])}: "
                return shown, Secret("passphrase", found[1], repeated)
            if _PASSWORD.fullmatch(prompt):
                return f"{prefix}Password of {self.hop.user}: ", Secret(
                    "password", self.hop.account, repeated
                )
            if prompt.startswith(_OWN):
                return f"{prefix}{one_line(prompt)} ", Secret(
                    "pin" if " PIN " in prompt else "text", again=repeated
                )
        words = _SERVER.sub("", prompt, 1)
        shown = question(prefix, [one_line(line, 500) for line in self._title()], one_line(words))
        return shown, Secret.of_server(self.hop.account, words, repeated)

    def _title(self) -> list[str]:
        """Return the lines before this question, such as the title of the server's questions."""
        lines = self.log.before_question
        return [line for line in lines if line.strip() and not line.startswith("Permission denied")]


def answer(hops: Sequence[Questions], prompt: str, kind: str) -> str | None:
    """Return the answer to a question of the ssh process of one of these hops, or of a program that it has started.

    Return None to refuse, and raise Abandoned, as `Questions.answer` does. The hops are in the order in which ssh
    connects to them."""
    until = time.monotonic() + _LOG_WAIT
    waiting = [hop for hop in hops if not hop.signed_in] or hops[-1:]
    while kind != "none" and time.monotonic() < until:
        for hop in waiting:
            if hop.asks(_LOG_INTERVAL):
                return hop.answer(prompt, kind, own=True)
    return waiting[0].answer(prompt, kind, own=not hops[0].hop.proxy_command)


def _of_another(prompt: str) -> tuple[str, Secret]:
    return question("", (), one_line(prompt), _ANOTHER), Secret()
