"""The SSH connection to a work node, over any number of jump hosts. Only this package uses paramiko.

This file has what callers implement: how the user is asked for a secret or about a host key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Secret:
    """What a question asks for. `of`: what it belongs to, the account of a password or the file of a passphrase; "" if
    the answer must not be stored. `again`: the answer before was wrong."""

    kind: Literal["password", "passphrase", "code", "pin", "text"] = "text"
    of: str = ""
    again: bool = False


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
