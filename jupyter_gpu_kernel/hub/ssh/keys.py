"""The user's private keys: key files and the ssh agent. This module knows no server and asks nobody."""

from __future__ import annotations

import base64
import binascii
import os
import socket
import sys
from pathlib import Path
from typing import Any

import paramiko
from paramiko.agent import AgentSSH

from .route import Hop


class LockedKey(Exception):
    """The key file is encrypted, and needs its passphrase."""


class UnusableKey(Exception):
    """The key file cannot be read, or not with this passphrase."""


def load_key(file: Path, passphrase: str | None) -> paramiko.PKey:
    """Return the private key. LockedKey or UnusableKey."""
    try:
        return paramiko.PKey.from_path(file, passphrase.encode() if passphrase else None)  # type: ignore[arg-type]
    except TypeError as error:  # raised by cryptography if the passphrase is missing
        raise LockedKey from error
    except Exception as error:  # a hardware token's key, a damaged file: each format has its own exceptions
        raise UnusableKey(_reason(file, error)) from error


def _reason(file: Path, error: Exception) -> str:
    blob = public_blob(file) or b""
    if blob[4:].startswith(b"sk-"):
        return "the key of a hardware token, which works only through the ssh agent"
    return f"cannot be used ({error or type(error).__name__})"


def public_blob(file: Path) -> bytes | None:
    """Return the public key, from the `.pub` file next to it, or from the file itself if that is a public key."""
    for path in (Path(f"{file}.pub"), file):
        try:
            words = path.read_bytes()[:16384].split()
            if len(words) > 1 and words[1].startswith(b"AAAA"):
                return base64.b64decode(words[1])
        except (OSError, binascii.Error):
            continue
    return None


class _SocketAgent(AgentSSH):
    """The agent behind a Unix socket. paramiko's own class reads only SSH_AUTH_SOCK, and has no timeout."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__()
        if sys.platform == "win32":  # where paramiko finds the agents itself
            raise OSError("no unix sockets")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]


def open_agent(hop: Hop, timeout: float) -> Any:
    """Return the ssh agent, or None. A missing or broken agent is no error, as there are other methods."""
    if hop.identity_agent == "none":
        return None
    try:
        if sys.platform == "win32":
            return paramiko.Agent()
        path = hop.identity_agent or os.environ.get("SSH_AUTH_SOCK")
        return _SocketAgent(path, timeout) if path else None
    except (OSError, paramiko.SSHException):
        return None
