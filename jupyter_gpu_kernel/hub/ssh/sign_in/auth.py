"""Signs in to one hop: with the agent, key files, then passwords and codes. The host key was verified before.

No object keeps a secret: it comes from `Asker`, and goes to the server or decrypts a key. Python cannot overwrite the
memory of a string, so a secret may stay there until that memory is used again.

A server's question is shown as such: on one line, printable, of bounded length, and after the hop's name.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import paramiko

from ....errors import AuthError, ConnectError
from ...sanitize import one_line
from .. import Asker, Secret, failures
from ..config.algorithms import HOST_KEYS, TOKEN_KEYS
from ..config.reasons import certificates
from ..config.route import Hop
from ..transport import Transport
from .keys import TRIES, UserKeys, agent_keys

_INTERACTIVE_TIMEOUT = 180.0  # seconds for the user to type; most servers give up after 120 (LoginGraceTime)


def sign_in(transport: Transport, hop: Hop, ask: Asker | None, remaining: Callable[[], float]) -> None:
    """Sign in, or raise AuthError, which says what was tried. `remaining()`: seconds until the deadline."""
    try:
        with agent_keys(hop) as held:
            _SignIn(transport, hop, ask, remaining, UserKeys(hop, ask, held)).run()
    except BaseException as error:
        clear_frames(error)  # their variables hold secrets, and an error may be kept for long
        raise
    finally:
        transport.forget_secrets()


def clear_frames(error: BaseException) -> None:
    """Clear the local variables of all functions that this error, or those that caused it, have ended."""
    chained: BaseException | None = error
    while chained is not None:
        traceback.clear_frames(chained.__traceback__)
        chained = chained.__cause__ or chained.__context__


@dataclass
class _SignIn:
    transport: Transport
    hop: Hop
    ask: Asker | None
    remaining: Callable[[], float]
    keys: UserKeys
    methods: set[str] | None = None  # that the server accepts next, once known
    partial: bool = False  # one method succeeded, and the server wants another one
    tried: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Sign in: with keys first, as ssh does by default, and with questions to the user last."""
        if self._try_keys() or self._try_none():
            return
        if not self._accepts_keys:  # then no other key, and no passphrase, helps
            self.keys.forget_problems()
        wanted = failures.typed_methods(self.methods or ())
        if not wanted or (self.keys.remedies and not self.partial):
            raise self._refused_error()
        if self.ask is None:
            raise failures.nobody_to_ask(self.hop, self.keys, self.tried, self.partial)
        if not self._try_typed():
            raise self._refused_error()

    @property
    def _accepts_keys(self) -> bool:
        """Whether the server accepts keys, as far as is known."""
        return self.partial or self.methods is None or "publickey" in self.methods

    # --- keys

    def _try_keys(self) -> bool:
        for name, key in self.keys.offered():
            forbidden = self._forbidden(key)
            if forbidden:
                self.keys.unusable.append(f"{name}: {forbidden}")
                continue
            if self.methods is not None and "publickey" not in self.methods:
                break
            self.transport.auth_timeout = self.remaining()
            try:
                wanted_next = self.transport.auth_publickey(self.hop.user, key)
            except paramiko.BadAuthenticationType as error:
                self.methods = set(error.allowed_types)
            except paramiko.AuthenticationException as error:
                self.tried.append(name)
                self._check_connection(error)
            except paramiko.SSHException as error:  # the agent refused to sign
                self._check_connection(error)
                self.keys.unusable.append(f"{name}: {one_line(str(error))}")
            else:
                if not wanted_next:
                    return True
                self.methods, self.partial = set(wanted_next), True
        for one in certificates(self.hop):
            self.keys.unusable.append(f"{one} can be offered only by the ssh program (--transport ssh)")
        return False

    def _forbidden(self, key: paramiko.PKey) -> str:
        """Return why this key must not be used; "" if it may be."""
        kind = key.get_name()
        if kind not in HOST_KEYS and kind not in TOKEN_KEYS:
            return f"keys of the type {one_line(kind)} are not supported"
        bits, least = key.get_bits(), self.hop.rsa_bits
        return f"{bits} bits, RequiredRSASize is {least}" if kind == "ssh-rsa" and bits < least else ""

    # --- passwords and codes

    def _try_none(self) -> bool:
        """Ask the server for its methods, if it has not sent them yet. True if it requires none."""
        if self.methods is None:
            self.transport.auth_timeout = self.remaining()
            try:
                return not self.transport.auth_none(self.hop.user)
            except paramiko.BadAuthenticationType as error:
                self.methods = set(error.allowed_types)
            except paramiko.SSHException as error:
                self._check_connection(error)
        return False

    def _try_typed(self) -> bool:
        """Ask for passwords and codes, by each method several times, then for those that the server wants next. True if
        signed in."""
        assert self.ask is not None
        self.transport.auth_timeout = _INTERACTIVE_TIMEOUT
        wanted, tries, prefix = failures.typed_methods(self.methods or ()), Counter[str](), ""
        while wanted:
            method = wanted[0]
            if tries[method] >= TRIES:
                del wanted[0]
                continue
            tries[method] += 1
            try:
                wanted_next = self._authenticate(method, self.ask, prefix)
            except paramiko.BadAuthenticationType as error:
                wanted = [other for other in wanted[1:] if other in error.allowed_types]
            except paramiko.AuthenticationException as error:
                self.tried.append(failures.TYPED)
                self._check_connection(error)
                prefix = "Not accepted. "
            else:
                if not wanted_next:
                    return True
                self.methods, self.partial, prefix = set(wanted_next), True, ""
                wanted = failures.typed_methods(wanted_next)
        return self.partial and self._try_keys()

    def _authenticate(self, method: str, ask: Asker, prefix: str) -> list[str]:
        hop = self.hop
        if method == "password":
            password = ask.secret(
                hop.label, f"{prefix}Password of {hop.user}: ", Secret("password", hop.account, bool(prefix))
            )
            return self.transport.auth_password(hop.user, password, fallback=False)

        def answers(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
            nonlocal prefix  # only the first of several questions has it
            prefix, first_prefix = ("", prefix) if prompts else (prefix, "")
            shown = [one_line(text, 500) for text in (title, instructions) if text.strip()]
            return [
                ask.secret(
                    hop.label,
                    question(first_prefix, shown, one_line(text)),
                    Secret.of_server(hop.account, text, bool(first_prefix), echo),
                )
                for text, echo in prompts
            ]

        return self.transport.auth_interactive(hop.user, answers)

    # --- error messages

    def _check_connection(self, error: Exception) -> None:
        """Return if the connection is still open. Raise why it has ended or timed out."""
        if str(error) == "Authentication timeout.":
            remedy = "Try again in a few minutes."
            raise ConnectError("timed out while signing in", hop=self.hop.label, remedy=remedy) from error
        if self.transport.is_active():
            return
        if reason := self.transport.disconnect_reason:
            attempts = failures.attempts(self.tried, self.keys)
            raise failures.disconnected(self.hop, reason, attempts) from error
        raise self._disconnected(error) from error

    def _disconnected(self, error: Exception) -> AuthError | ConnectError:
        """Return the error for a connection that ended without a reason: the network failed, or the server's PAM rules
        refuse the user."""
        if not isinstance(error, paramiko.AuthenticationException) and str(error) != "No existing session":
            remedy = "Tell its administrators."
            return ConnectError(one_line(str(error)), hop=self.hop.label, remedy=remedy)
        return failures.closed_while_signing_in(self.hop, self.transport.last_banner)

    def _refused_error(self) -> AuthError:
        return failures.refused(self.hop, self.keys, self.tried, self.methods or (), self._accepts_keys)


def question(prefix: str, shown: Sequence[str], prompt: str, speaker: str = "The server") -> str:
    """Return one line that marks the speaker's words as such, so that they cannot pass for another question."""
    words = re.sub("[“”]", '"', " · ".join([*shown, prompt]))
    return f"{prefix}{speaker} asks: “{words}” "
