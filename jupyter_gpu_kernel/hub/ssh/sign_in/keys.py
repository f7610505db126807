"""The user's private keys for one hop: key files and the ssh agent, in the order in which they are offered.

This module knows no server.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import paramiko

from ....wire.texts import as_typed
from ...transport.stream import NotReturned, return_within
from .. import Asker, Secret
from ..config.route import Hop

CERTIFICATE = "-cert-v01@openssh.com"
"""How the types of certificates end."""
TRIES = 3
"""How often the user may type one secret. Another NumberOfPasswordPrompts needs the ssh program."""
_AGENT_TIMEOUT = 5.0  # seconds for the agent to list its keys
_LOGIN = "“jupyter gpu-kernel login NAME”"


class UserKeys:
    """The user's keys for one hop, and why some of them are not used."""

    def __init__(self, hop: Hop, ask: Asker | None, agent_keys: Sequence[paramiko.PKey]) -> None:
        self._hop, self._ask, self._agent_keys = hop, ask, agent_keys
        self.unusable: list[str] = []  # why a key file was not used
        self.remedies: list[str] = []
        self.locked = False  # whether a passphrase was needed and nobody could be asked

    def offered(self) -> Iterator[tuple[str, paramiko.PKey]]:
        """Yield agent keys that the configuration names, key files, other agent keys, encrypted key files."""
        held = {key.asbytes(): key for key in self._agent_keys if not key.get_name().endswith(CERTIFICATE)}
        locked: list[Path] = []
        for file in self._hop.identity_files:
            key = held.pop(_public_blob(file) or b"", None)
            if key is not None:
                yield f"{file} (in the agent)", key
            elif file.is_file() and self._is_private(file):
                try:
                    yield str(file), _load_key(file, None)
                except _LockedKey:
                    locked.append(file)
                except _UnusableKey as error:
                    self.unusable.append(f"{file}: {error}")
        if not self._hop.identities_only:
            yield from (("a key of the agent", key) for key in held.values())
        for file in locked:
            opened = self._unlock(file)
            if opened is not None:
                yield str(file), opened

    def _is_private(self, file: Path) -> bool:
        """Apply ssh's rule that nobody else may read a private key."""
        if sys.platform == "win32":
            return True
        status = file.stat()
        if status.st_uid != os.getuid() or not status.st_mode & 0o077:
            return True
        self.unusable.append(
            f"{file} was not used, because others can read it (mode {status.st_mode & 0o777:04o})"
        )
        self.remedies.append(f"“{as_typed(['chmod', '600', str(file)])}”")
        return False

    def _unlock(self, file: Path) -> paramiko.PKey | None:
        if self._ask is None:
            self.locked = True
            self.unusable.append(f"{file} needs its passphrase")
            self.remedies.append(f"“{as_typed(['ssh-add', str(file)])}” or {_LOGIN}")
            return None
        wrong = ""
        prompt = f"Passphrase of {file}: "
        for _ in range(TRIES):
            try:
                secret = Secret("passphrase", str(file), bool(wrong))
                return _load_key(file, self._ask.secret(self._hop.label, f"{wrong}{prompt}", secret))
            except _UnusableKey:
                wrong = "Wrong passphrase. "
        self.unusable.append(f"{file}: wrong passphrase")
        return None

    def add_token(self, provider: str) -> None:
        """The keys of this PKCS#11 provider were not used, because nobody could type the PIN."""
        self.locked = True
        self.unusable.append(f"the keys of {provider} need their PIN")
        self.remedies.append(_LOGIN)

    def forget_problems(self) -> None:
        """The server accepts no keys: no other key, and no passphrase, helps."""
        self.unusable, self.remedies, self.locked = [], [], False


class _LockedKey(Exception):
    """The key file is encrypted, and needs its passphrase."""


class _UnusableKey(Exception):
    """The key file cannot be read, or not with this passphrase."""


def _load_key(file: Path, passphrase: str | None) -> paramiko.PKey:
    """Return the private key, without the certificate beside it, which paramiko also loads: certificates are left to
    the ssh program. Raises _LockedKey or _UnusableKey."""
    try:
        key = paramiko.PKey.from_path(file, passphrase.encode() if passphrase else None)  # type: ignore[arg-type]
        key.public_blob = None
        return key
    except TypeError as error:  # raised by cryptography if the passphrase is missing
        raise _LockedKey from error
    except Exception as error:  # a hardware token's key, a damaged file: each format has its own exceptions
        raise _UnusableKey(_reason(file, error)) from error


def _reason(file: Path, error: Exception) -> str:
    if is_token_key(file):
        return "the key of a hardware token, which works only through the ssh agent"
    return f"cannot be used ({error or type(error).__name__})"


def is_token_key(file: Path) -> bool:
    """Whether the key is that of a hardware token (FIDO), to which the file only refers: its type begins with “sk-”."""
    blob = _public_blob(file)
    if blob is not None:
        return blob[4:].startswith(b"sk-")
    try:  # the type is in the part of a private key that is not encrypted
        text = b"".join(file.read_bytes()[:16384].split()[4:])[:280]
        return any(name in base64.b64decode(text) for name in (b"sk-ssh-", b"sk-ecdsa-"))
    except (OSError, binascii.Error):
        return False


def _public_blob(file: Path) -> bytes | None:
    """Return the public key, from the `.pub` file next to it, or from the file itself if that is a public key."""
    for path in (Path(f"{file}.pub"), file):
        try:
            words = path.read_bytes()[:16384].split()
            if len(words) > 1 and words[1].startswith(b"AAAA"):
                return base64.b64decode(words[1])
        except (OSError, binascii.Error):
            continue
    return None


class _Agent:
    """The user's ssh agent, which is asked by one call at a time. While a call still waits for a silent agent, there is
    no other: each would cost a thread and a descriptor."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._waiting: threading.Thread | None = None

    def connect(self) -> paramiko.Agent | None:
        """Return a connection to the agent; None if it is missing, broken or silent."""
        with self._turn:
            if self._waiting is not None and self._waiting.is_alive():
                return None
            try:
                return return_within(_AGENT_TIMEOUT, paramiko.Agent)
            except NotReturned as silent:
                self._waiting = silent.thread
            except (OSError, paramiko.SSHException):
                pass  # there are other methods
            return None


_agent = _Agent()


@contextlib.contextmanager
def agent_keys(hop: Hop) -> Iterator[Sequence[paramiko.PKey]]:
    """Yield the keys of the ssh agent, which is connected until the end of the block. An agent that is missing, broken
    or silent has none, which is no error, as there are other methods."""
    agent = _agent.connect() if hop.uses_agent else None
    try:
        yield agent.get_keys() if agent is not None else ()
    finally:
        if agent is not None:
            agent.close()
