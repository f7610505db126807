"""The SSH connection to a work node, over any number of jump hosts. Only this package uses paramiko.

- This file has what callers pass in: one attempt to connect, and how the user is asked for secrets and about host keys.
- `config/` reads the user's ssh configuration, and makes the hops of a route; `sign_in/` signs in to one hop.
- `route_connection.py` goes from hop to hop, and has the connection that results, for both transports;
  `hostkeys.py` verifies host keys, and `failures.py` has the errors that the transports share.
- Of paramiko: `connect.py` connects to one hop, `paramiko_hop.py` runs commands there, `transport.py` and `packets.py`
  bound and tune what is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

CONNECT_WITHIN = 25.0
"""Seconds for all hops together, without the time that the user takes to answer."""
_PASSWORD = re.compile(
    r"(?:\(?\S+@\S+\)? ?)?(?:\S+'s )?(?:unix )?password(?: for \S+| of \S+)?\s*:?\s*", re.I
)
_CODE = re.compile(r"\b(?:code|otp|one-time|passcode|token|verification|authenticator|2fa)\b", re.I)
_PIN = re.compile(r"\bpin\b", re.I)


@dataclass(frozen=True)
class Secret:
    """What a question asks for. `of`: what it belongs to, the account of a password or the file of a passphrase; "" if
    the answer must not be stored. `again`: the answer before was wrong."""

    kind: Literal["password", "passphrase", "code", "pin", "text"] = "text"
    of: str = ""
    again: bool = False

    @classmethod
    def of_server(cls, account: str, prompt: str, again: bool, echo: bool = False) -> Secret:
        """Return the secret that the words of a server ask for: the password of this account (`Hop.account`) only if
        nothing else can be meant, since a server may ask for a new password, a code, or anything. `echo`: the server
        permits that the answer is shown."""
        if _PASSWORD.fullmatch(prompt.strip()) and not echo:
            return cls("password", account, again)
        if _PIN.search(prompt):
            return cls("pin", again=again)
        return cls("code" if _CODE.search(prompt) else "text", again=again)


def matches_fingerprint(typed: str, fingerprint: str) -> bool:
    """Whether the text is enough of the fingerprint to show that the user compared it."""
    return len(typed) >= 4 and fingerprint.endswith(typed)


class Asker(Protocol):
    """Asks the user; called on a worker thread. An exception that it raises ends the attempt to connect."""

    def secret(self, hop: str, prompt: str, secret: Secret) -> str:
        """Return what `secret` describes; `prompt` is the server's or ours. Raises NotAnswered if nobody is there."""
        ...

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Return whether the user confirms this fingerprint ("SHA256:…") as that machine's."""
        ...


def _ignore(hop: str, step: str) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Attempt:
    """One attempt to connect along a route, for one caller."""

    ask: Asker | None = None
    """What asks the user; without an asker, unknown host keys and requests for passwords are errors."""
    progress: Callable[[str, str], None] = _ignore
    """Called with a hop and "reach", "host key" or "sign in" as each step begins."""
    timeout: float = CONNECT_WITHIN
    """Seconds for all hops together, without the time that the user takes to answer."""
    shares: bool = True
    """Whether to use the first hops of another open connection if the user typed a secret for them."""
