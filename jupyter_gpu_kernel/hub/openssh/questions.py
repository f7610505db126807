"""Answers the questions of one hop's ssh process: shows them to the user with their speaker, and passes the answer on.

A question is ssh's own only if it cannot be the server's: since OpenSSH 8.5 the server's begin with “(user@host)”. Of
an older ssh every question is shown as the server's. Another program that ssh has started, such as the ssh of a
ProxyCommand, asks for another machine, and never in the name of this hop.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from ..sanitize import one_line
from ..ssh import Asker, Secret
from ..ssh.config.route import Hop
from ..ssh.failures import MAX_QUESTIONS, too_many_questions
from ..ssh.sign_in import secret_kinds
from ..ssh.sign_in.auth import question
from .askpass_server import Abandoned
from .log import HOST_KEY, HostKey, Log

_LOG_WAIT = 0.5  # seconds for the lines before a question to be read
_MARKED = (8, 5)  # the first version that marks the server's questions
_SERVER = re.compile(r"\([^()]*@[^()]*\) ?")
_PASSPHRASE = re.compile(r"Enter passphrase for (?:key )?'?(.*?)'?: ?")
_PASSWORD = re.compile(r"\S*'s password: ?")
_ANOTHER = "A program of ProxyCommand"
_OWN = (
    *("Enter PIN for ", "Enter passphrase for "),
    *("Confirm user presence for key", "Enter new ", "Retype "),
)


class Questions:
    """`answer` is for AskpassServer. `problem`: why the attempt has to end, if it has to."""

    def __init__(
        self,
        hop: Hop,
        version: tuple[int, int],
        ask: Asker | None,
        log: Log,
        accepted: HostKey | None,
        progress: Callable[[str, str], None],
    ) -> None:
        """`accepted`: the host key that the user has accepted just now."""
        self._hop, self._version, self._ask, self._log = hop, version, ask, log
        self._accepted = accepted
        self._progress = progress
        self._asked: list[str] = []
        self._own_questions = 0  # as the log counts them
        self.problem: Exception | None = None

    @property
    def typed(self) -> bool:
        """Whether the user has answered a question."""
        return bool(self._asked)

    def answer(self, prompt: str, kind: str, own: bool) -> str | None:
        """Return the answer, or None to refuse. Raises Abandoned. `own`: the hop's ssh process asks."""
        if own and kind != "none":
            self._own_questions += 1
            self._log.wait_for_questions(self._own_questions, _LOG_WAIT)
            if self._log.step == HOST_KEY:
                return self._confirm_host(prompt)
        if kind == "none":
            self._progress(self._hop.label, one_line(prompt))
        if kind in ("none", "confirm") or self._ask is None:
            return None
        if len(self._asked) >= MAX_QUESTIONS:
            self._fail(too_many_questions(self._hop))
        try:
            shown, secret = self._shown(prompt) if own else _of_another(prompt)
            self._asked.append(prompt)
            return self._ask.secret(self._hop.label, shown, secret)
        except Exception as error:  # such as the user's wish to end it: the caller of `connect` gets it
            self._fail(error)

    def _confirm_host(self, prompt: str) -> str:
        """ssh asks whether the host key is right: it is if the user has accepted that very key."""
        return "yes" if self._accepted is not None and self._accepted.fingerprint in prompt else "no"

    def _fail(self, error: Exception) -> NoReturn:
        self.problem = error
        self._log.end()
        raise Abandoned from error

    def _shown(self, prompt: str) -> tuple[str, Secret]:
        repeated = self._asked[-1:] == [prompt]
        prefix = "Not accepted. " if repeated else ""
        if self._version >= _MARKED and not _SERVER.match(prompt):
            if found := _PASSPHRASE.fullmatch(prompt):
                shown = f"{'Wrong passphrase. ' * repeated}Passphrase of {one_line(found[1])}: "
                return shown, secret_kinds.passphrase(found[1], repeated)
            if _PASSWORD.fullmatch(prompt):
                return f"{prefix}Password of {self._hop.user}: ", secret_kinds.password(self._hop, repeated)
            if prompt.startswith(_OWN):
                return f"{prefix}{one_line(prompt)} ", Secret(
                    "pin" if " PIN " in prompt else "text", again=repeated
                )
        words = _SERVER.sub("", prompt, 1)
        shown = question(prefix, [one_line(line, 500) for line in self._title()], one_line(words))
        return shown, secret_kinds.of_server(self._hop, words, repeated)

    def _title(self) -> list[str]:
        """Return the lines before this question, such as the title of the server's questions."""
        lines = self._log.before_question
        return [line for line in lines if line.strip() and not line.startswith("Permission denied")]


def _of_another(prompt: str) -> tuple[str, Secret]:
    return question("", (), one_line(prompt), _ANOTHER), Secret()
