"""Signing in to one hop: agent, key files, then what the owner must type. The host key is verified before.

Secrets pass through and stay nowhere: they come from `Asker`, go to the server or open a key, and no object keeps
them. Python cannot overwrite the memory of a string: it may be found there until it is used again.

What a server asks is shown as its own words: on one line, printable, bounded, and behind the hop's name.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import paramiko

from ...errors import AuthError, ConnectError
from ...wire.texts import as_typed
from ..inert import one_line
from .keys import LockedKey, UnusableKey, load, open_agent, public_blob
from .route import Hop
from .transport import Transport

_QUESTIONS = 12  # that one server may ask, tries included
_PATIENCE = 180.0  # seconds for the owner to type; most servers end it after 120 (LoginGraceTime)
_TYPED = "what was typed"
_LOGIN = "jupyter gpu-kernel login NAME"
_DENIED = re.compile(
    r"\b(denied|not allowed|no active jobs?|expired|locked|maintenance|going down)\b", re.IGNORECASE
)


class Asker(Protocol):
    """How to ask the owner, from any thread. To give up, raise an Exception: `connect` raises it in turn."""

    def secret(self, hop: str, prompt: str) -> str:
        """A password, passphrase or code; `prompt` is the server's or ours."""
        ...

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Whether the owner knows this fingerprint ("SHA256:…") as that machine's."""
        ...


def sign_in(transport: Transport, hop: Hop, ask: Asker | None, left: Callable[[], float]) -> None:
    """Return when the hop has let us in, else AuthError says what was tried. `left()`: seconds there are."""
    agent = open_agent(hop, left())
    try:
        _Login(transport, hop, ask, left, agent.get_keys() if agent else ()).run()
    except BaseException as error:
        forget_frames(error)  # they know what was typed, and an error may be kept for long
        raise
    finally:
        transport.forget_secrets()
        if agent is not None:
            agent.close()


def forget_frames(error: BaseException) -> None:
    """Drop the local variables of all functions that have ended by this error, or by those before it."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__


@dataclass
class _Login:
    transport: Transport
    hop: Hop
    ask: Asker | None
    left: Callable[[], float]
    agent_keys: Sequence[paramiko.PKey]
    methods: set[str] | None = None  # what the server would take next, once it said so
    partial: bool = False  # a key was taken, and something more is wanted
    tried: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)  # why a key file was not used
    remedies: list[str] = field(default_factory=list)
    locked: bool = False  # whether a passphrase could not be asked for
    asked: int = 0  # questions of the server that the owner was asked

    def run(self) -> None:
        """All of it, in ssh's order: keys first, the owner last."""
        if self._with_keys() or self._with_none():
            return
        if not self._takes_keys:  # then no other key, and no passphrase, would help
            self.remedies, self.unusable, self.locked = [], [], False
        wanted = self._typed(self.methods or ())
        if not wanted or (self.remedies and not self.partial):
            raise self._refused()
        if self.ask is None:
            what = "a further code or password" if self.partial else "a password or code"
            raise AuthError(
                f"asks for {what}, and there is nobody here to ask" + self._tried(),
                hop=self.hop.label,
                remedy=f"Sign in once where you can type: {_LOGIN}",
                login=True,
            )
        self._with_secrets(wanted, self.ask)

    def _typed(self, methods: Collection[str]) -> list[str]:
        """Those by which the owner types something, as far as server and ssh config allow them."""
        return [one for one in self.hop.restrictions.methods if one in methods and one != "publickey"]

    @property
    def _takes_keys(self) -> bool:
        """Whether the server takes keys, as far as it has said which methods it takes."""
        return self.partial or self.methods is None or "publickey" in self.methods

    # --- keys

    def _with_keys(self) -> bool:
        if "publickey" not in self.hop.restrictions.methods:
            return False
        for name, key in self._keys():
            if not self.transport.algorithms.can_sign(key.get_name()):
                self.unusable.append(f"{name}: {key.get_name()} is not among PubkeyAcceptedAlgorithms")
                continue
            if self.methods is not None and "publickey" not in self.methods:
                break
            self.transport.auth_timeout = self.left()
            try:
                left = self.transport.auth_publickey(self.hop.user, key)
            except paramiko.BadAuthenticationType as error:
                self.methods = set(error.allowed_types)
            except paramiko.AuthenticationException as error:
                self.tried.append(name)
                self._still_there(error)
            except paramiko.SSHException as error:  # an agent that will not sign
                self._still_there(error)
                self.unusable.append(f"{name}: {one_line(str(error))}")
            else:
                if not left:
                    return True
                self.methods, self.partial = set(left), True
        return False

    def _keys(self) -> Iterator[tuple[str, paramiko.PKey]]:
        """The agent's keys that the config names, key files, the agent's other keys, locked key files."""
        held = {key.asbytes(): key for key in self.agent_keys}
        locked: list[Path] = []
        for file in self.hop.identity_files:
            key = held.pop(public_blob(file) or b"", None)
            if key is not None:
                yield f"{file} (in the agent)", key
            elif file.is_file() and self._is_private(file):
                try:
                    yield str(file), load(file, None)
                except LockedKey:
                    locked.append(file)
                except UnusableKey as error:
                    self.unusable.append(f"{file}: {error}")
        if not self.hop.identities_only:
            yield from (("a key of the agent", key) for key in held.values())
        for file in locked:
            opened = self._unlock(file)
            if opened is not None:
                yield str(file), opened

    def _is_private(self, file: Path) -> bool:
        """ssh's own rule: others must not be able to read a key of ours."""
        if sys.platform == "win32":
            return True
        status = file.stat()
        if status.st_uid != os.getuid() or not status.st_mode & 0o077:
            return True
        self.unusable.append(
            f"{file} can be read by others (mode {status.st_mode & 0o777:04o}), so it was not used"
        )
        self.remedies.append(as_typed(["chmod", "600", str(file)]))
        return False

    def _unlock(self, file: Path) -> paramiko.PKey | None:
        if self.ask is None:
            self.locked = True
            self.unusable.append(f"{file} needs its passphrase")
            self.remedies.append(f"{as_typed(['ssh-add', str(file)])}, or {_LOGIN}")
            return None
        wrong = ""
        for _ in range(self.hop.restrictions.tries):
            try:
                return load(file, self.ask.secret(self.hop.label, f"{wrong}Passphrase of {file}: "))
            except UnusableKey:
                wrong = "That does not open it. "
        self.unusable.append(f"{file}: wrong passphrase")
        return None

    # --- what the owner types

    def _with_none(self) -> bool:
        """Ask what the server would take, if it has not said so yet. True if it wants nothing."""
        if self.methods is None:
            self.transport.auth_timeout = self.left()
            try:
                return not self.transport.auth_none(self.hop.user)
            except paramiko.BadAuthenticationType as error:
                self.methods = set(error.allowed_types)
            except paramiko.SSHException as error:
                self._still_there(error)
        return False

    def _with_secrets(self, wanted: Sequence[str], ask: Asker) -> None:
        self.transport.auth_timeout = _PATIENCE
        again = ""
        for _ in range(self.hop.restrictions.tries):
            try:
                left = self._answer(wanted[0], ask, again)
            except paramiko.BadAuthenticationType as error:
                wanted = [method for method in wanted[1:] if method in error.allowed_types]
                if not wanted:
                    raise self._refused() from error
            except paramiko.AuthenticationException as error:
                self.tried.append(_TYPED)
                self._still_there(error)
                again = "That was not accepted. "
            else:
                if not left:
                    return
                again = ""
                wanted = self._typed(left) or wanted
        raise self._refused()

    def _answer(self, method: str, ask: Asker, again: str) -> list[str]:
        hop = self.hop
        if method == "password":
            password = ask.secret(hop.label, f"{again}Password of {hop.user}: ")
            return self.transport.auth_password(hop.user, password, fallback=False)

        def answers(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
            nonlocal again  # of several questions in a row the first begins anew
            again, wrong = ("", again) if prompts else (again, "")
            self.asked += len(prompts)
            if self.asked > _QUESTIONS:
                raise self._asks_too_much()
            said = [one_line(text, 500) for text in (title, instructions) if text.strip()]
            return [ask.secret(hop.label, _question(wrong, said, one_line(text))) for text, _ in prompts]

        return self.transport.auth_interactive(hop.user, answers)

    def _asks_too_much(self) -> AuthError:
        return AuthError(
            f"asks more than {_QUESTIONS} questions",
            hop=self.hop.label,
            remedy="Its administrators should know: no sign-in needs that many.",
        )

    # --- what to say

    def _still_there(self, error: Exception) -> None:
        if str(error) == "Authentication timeout.":
            raise ConnectError(
                "does not answer (timed out while signing in)",
                hop=self.hop.label,
                remedy="Try again in a while.",
            ) from error
        if not self.transport.is_active() and not self.transport.farewell:
            raise self._hung_up(error) from error
        if not self.transport.is_active():
            raise AuthError(
                f"ended the connection while we signed in: {self.transport.farewell}" + self._tried(),
                hop=self.hop.label,
                remedy="It may have been offered too many keys: name one with -i, or set IdentitiesOnly yes.",
            ) from error

    def _hung_up(self, error: Exception) -> AuthError | ConnectError:
        """Without a goodbye: so do a network that is gone, and a server whose rules (PAM) let nobody in."""
        if not isinstance(error, paramiko.AuthenticationException) and str(error) != "No existing session":
            remedy = "Its administrators should know."
            return ConnectError(one_line(str(error)), hop=self.hop.label, remedy=remedy)
        said = self.transport.last_words
        if not _DENIED.search(said):
            cause = "the connection was lost while we signed in"
            return ConnectError(cause, hop=self.hop.label, remedy="Try again in a while.")
        remedy = "Ask its administrators; what it says is its own rule."
        if re.search(r"\bjobs?\b", said, re.IGNORECASE):
            remedy = "Start a job on this node first (Slurm: salloc, sbatch), then try again."
        return AuthError(f"lets nobody in now: “{said}”", hop=self.hop.label, remedy=remedy)

    def _tried(self) -> str:
        parts = [f"refused: {', '.join(dict.fromkeys(self.tried))}"] if self.tried else []
        parts += self.unusable
        return f" ({'; '.join(parts)})" if parts else ""

    def _refused(self) -> AuthError:
        if self.remedies:
            remedy = f"Run: {'; '.join(self.remedies)}"
        elif _TYPED in self.tried:
            remedy = "Check the user name, and what was typed."
        elif not self._takes_keys:
            remedy = (
                "This server takes no keys (PubkeyAuthentication no). Ask its administrators how to sign in; Kerberos "
                "(gssapi) is not supported here."
            )
        elif "publickey" not in self.hop.restrictions.methods:
            remedy = "Your ssh config forbids keys for this host: see PubkeyAuthentication, PreferredAuthentications."
        elif self.tried:
            remedy = "Check the user name, and that the key's public half is in ~/.ssh/authorized_keys there."
        else:
            remedy = "Give a key with -i, or load one into the ssh agent (ssh-add)."
        takes = one_line(", ".join(sorted(filter(None, self.methods or ())))) or "nothing we have"
        return AuthError(
            f"does not let {self.hop.user} in{self._tried()}; it takes: {takes}",
            hop=self.hop.label,
            remedy=remedy,
            login=self.locked,
        )


def _question(wrong: str, said: Sequence[str], prompt: str) -> str:
    """One line: the server's words are marked as such, and cannot pass for another server's question or for ours."""
    return f"{wrong}The server asks: “{' · '.join([*said, prompt])}” "
