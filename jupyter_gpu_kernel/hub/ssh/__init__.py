"""The SSH connection to a work node, over any number of jump hosts. Only this package uses paramiko.

This file has what callers implement: how the user is asked for a secret or about a host key.
"""

from __future__ import annotations

from typing import Protocol


class Asker(Protocol):
    """Asks the user; called on a worker thread. An exception that it raises ends the attempt to connect."""

    def secret(self, hop: str, prompt: str) -> str:
        """Return a password, passphrase or code; `prompt` is the server's or ours."""
        ...

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Return whether the user confirms this fingerprint ("SHA256:…") as that machine's."""
        ...
