"""Verifies host keys: reads known_hosts files, compares, and adds accepted keys to our own file.

Verification is always strict: an unknown key is an error unless the user accepts it; a changed or revoked key is always
an error. The user's own files are only read. A key is the name of its type and its blob (bytes), as in the SSH
protocol. This module knows no sockets, and not how the user is asked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import paramiko

from ...errors import BY_LOGIN, HostKeyError, UnknownHost
from ...wire.texts import as_typed
from .config.algorithms import HOST_KEYS
from .config.route import Hop

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """One line of a known_hosts file: `marker` is "", "@revoked" or "@cert-authority"."""

    marker: str
    hosts: str
    key_type: str
    blob: bytes
    file: Path
    line: int

    def matches(self, name: str) -> bool:
        """Whether the line's hosts include `name` ("host" or "[host]:port", lower case)."""
        if self.hosts.startswith("|"):
            return _hashed_match(self.hosts, name)
        found = False
        for pattern in self.hosts.lower().split(","):
            # Only * and ? are special to ssh; fnmatch would also read the brackets of "[host]:port".
            if fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
                if pattern.startswith("!"):
                    return False
                found = True
        return found


def _hashed_match(hosts: str, name: str) -> bool:
    try:
        return paramiko.HostKeys.hash_host(name, salt=hosts) == hosts
    except (ValueError, AssertionError):  # its salt is malformed
        return False


def _read_entries(files: Sequence[Path]) -> Iterator[Entry]:
    """Yield the valid lines of those files that exist; an invalid line is logged and skipped."""
    for file in files:
        try:
            lines = file.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("%s cannot be read: %s", file, error)
            continue
        for number, text in enumerate(lines, 1):
            words = text.split()
            if words and not words[0].startswith("#"):
                entry = _parse_line(words, file, number)
                if entry is not None:
                    yield entry


def _parse_line(words: list[str], file: Path, number: int) -> Entry | None:
    marker = words.pop(0) if words[0].startswith("@") else ""
    try:
        hosts, key_type, text = words[:3]
        return Entry(marker, hosts, key_type, base64.b64decode(text, validate=True), file, number)
    except (ValueError, binascii.Error):
        _log.warning("%s, line %d: skipped, because it is not a valid known_hosts line", file, number)
        return None


def names(hop: Hop) -> tuple[str, ...]:
    """Return the names under which a hop's key may be listed: with the port first, then without, as in ssh."""
    if hop.host_key_alias:
        return (hop.host_key_alias.lower(),)
    host = hop.host.lower()
    return (host,) if hop.port == 22 else (f"[{host}]:{hop.port}", host)


def lookup(hop: Hop, trust_file: Path) -> list[Entry]:
    """Return all lines about this hop, of the user's files and of `trust_file`."""
    entries = list(_read_entries([*hop.known_hosts, trust_file]))
    found = [[entry for entry in entries if entry.matches(name)] for name in names(hop)]
    keys = next((some for some in found if any(not entry.marker for entry in some)), [])
    marked = [entry for some in found for entry in some if entry.marker]
    return [entry for entry in keys if not entry.marker] + marked


def offer(entries: Sequence[Entry]) -> list[str]:
    """Return the host key algorithms to offer, those of known keys first: another type would look like a change."""
    known = [entry.key_type for entry in entries if not entry.marker]
    ordered = sorted(HOST_KEYS, key=lambda key_type: key_type not in known)
    return [algorithm for key_type in ordered for algorithm in HOST_KEYS[key_type]]


def verify(
    hop: Hop,
    key_type: str,
    blob: bytes,
    entries: Sequence[Entry],
    trust_file: Path,
    confirm: Callable[[str, str, str], bool] | None,
) -> None:
    """Raise HostKeyError unless the key is the hop's. `confirm(label, fingerprint, key_type)` asks the user."""
    for entry in entries:
        if entry.marker == "@revoked" and entry.blob == blob:
            raise revoked(hop, entry, fingerprint(blob))
    known = [entry for entry in entries if not entry.marker and entry.key_type in HOST_KEYS]
    if any(entry.blob == blob for entry in known):
        return
    if known:
        raise changed(hop, known, key_type, fingerprint(blob))
    if not hop.new_hosts:
        raise strict(hop, key_type, fingerprint(blob))
    if confirm is None or not confirm(hop.label, fingerprint(blob), key_type):
        raise unknown(hop, entries, key_type, fingerprint(blob), confirm is not None, "needs --transport ssh")
    trust(trust_file, names(hop)[0], key_type, blob)


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint as `ssh-keygen -l` shows it: "SHA256:…"."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def trust(trust_file: Path, name: str, key_type: str, blob: bytes) -> None:
    """Append the line for an accepted key to our own file."""
    append(trust_file, f"{name} {key_type} {base64.b64encode(blob).decode()}\n".encode())


def append(trust_file: Path, line: bytes) -> None:
    """Append to our own file (0600), in one write, as another process may do the same at once. An empty line makes the
    file, if there is none."""
    trust_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(trust_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def revoked(hop: Hop, entry: Entry, fingerprint: str) -> HostKeyError:
    """Return the error for a key that a line of known_hosts revokes."""
    return HostKeyError(
        f"its host key {fingerprint} is revoked ({entry.file}, line {entry.line})",
        hop=hop.label,
        remedy="Do not connect. Ask the machine's administrators.",
    )


def changed(hop: Hop, known: Sequence[Entry], key_type: str, fingerprint: str) -> HostKeyError:
    """Return the error for a host whose key is none of the known ones."""
    places = ", ".join(f"{entry.file} line {entry.line}" for entry in known)
    files = dict.fromkeys(str(entry.file) for entry in known)
    commands = [f"“{as_typed(['ssh-keygen', '-R', names(hop)[0], '-f', file])}”" for file in files]
    return HostKeyError(
        f"its host key has changed: it is now {key_type} {fingerprint}, and the known one is in {places}",
        hop=hop.label,
        remedy="This may be a man-in-the-middle attack, or the machine was reinstalled. Only if its administrators "
        f"confirm the new fingerprint, remove the old key with {' and '.join(commands)}, and connect again.",
    )


def strict(hop: Hop, key_type: str, fingerprint: str) -> UnknownHost:
    """Return the error for an unknown key where the user's configuration lets nobody accept it."""
    return UnknownHost(
        f"its host key is not known: {key_type} {fingerprint}, and the ssh configuration has "
        "StrictHostKeyChecking yes",
        hop=hop.label,
        remedy="Compare the fingerprint with the administrators' one, and add the key to known_hosts yourself.",
    )


def unknown(
    hop: Hop, entries: Sequence[Entry], key_type: str, fingerprint: str, asked: bool, authority: str
) -> UnknownHost:
    """Return the error for an unknown key. `authority`: why a certificate authority in known_hosts does not help."""
    cause = f"its host key is not known: {key_type} {fingerprint}"
    for entry in entries:
        if entry.marker == "@cert-authority":
            cause += f" ({entry.file}, line {entry.line} trusts a certificate authority, which {authority})"
    remedy = "Compare this fingerprint with the administrators' one, and accept it "
    remedy += "by typing its end when asked again." if asked else f"once {BY_LOGIN}."
    return UnknownHost(cause, hop=hop.label, remedy=remedy, login=not asked)


def check_rsa_size(hop: Hop, bits: int) -> None:
    """Raise HostKeyError for an RSA key that is shorter than the ssh configuration permits."""
    if bits < hop.rsa_bits:
        raise not_permitted(hop, f"its RSA key has {bits} bits, RequiredRSASize is {hop.rsa_bits}")


def not_permitted(hop: Hop, cause: str) -> HostKeyError:
    """Return the error for a key that the ssh configuration forbids."""
    remedy = "Ask the machine's administrators. If the key is the right one, correct the ssh configuration."
    return HostKeyError(cause, hop=hop.label, remedy=remedy)
