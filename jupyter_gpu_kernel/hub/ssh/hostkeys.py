"""Is this machine the one we know? known_hosts files read line by line, judged, and our own one extended.

Strict always: unknown is an error unless the owner says yes; changed and revoked are errors whatever anybody
says. The user's files are only read, what the owner accepts goes to our own file. A key is its type's name
and its blob (bytes), as on the wire; nothing here knows paramiko, sockets or how the owner is asked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from pathlib import Path

from ...errors import HostKeyError
from ...wire.texts import as_typed
from . import hostkey_rules
from .route import Hop

_log = logging.getLogger(__name__)

# Key types that can be checked here, as known_hosts names them, and the algorithms to offer for each.
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}


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
        """Whether `name` ("host" or "[host]:port", lower case) is among the line's hosts."""
        if self.hosts.startswith("|"):
            return _hashed_match(self.hosts, name)
        found = False
        for pattern in self.hosts.lower().split(","):
            if _wildcard_match(pattern.removeprefix("!"), name):
                if pattern.startswith("!"):
                    return False
                found = True
        return found


def _hashed_match(hosts: str, name: str) -> bool:
    try:
        _, version, salt, digest = hosts.split("|")
        made = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
        return version == "1" and hmac.compare_digest(made, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False


def _wildcard_match(pattern: str, name: str) -> bool:
    # Only * and ? are special to ssh; fnmatch would also read the brackets of "[host]:port".
    return re.fullmatch(translate(pattern.replace("[", "[[]")), name) is not None


def read(files: Sequence[Path]) -> Iterator[Entry]:
    """The usable lines of those files that exist; a bad line is logged and skipped, not the whole file."""
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
                entry = _read_line(words, file, number)
                if entry is not None:
                    yield entry


def _read_line(words: list[str], file: Path, number: int) -> Entry | None:
    marker = words.pop(0) if words[0].startswith("@") else ""
    try:
        hosts, key_type, text = words[:3]
        return Entry(marker, hosts, key_type, base64.b64decode(text, validate=True), file, number)
    except (ValueError, binascii.Error):
        _log.warning("%s, line %d: not a known_hosts line, skipped", file, number)
        return None


def names(hop: Hop) -> tuple[str, ...]:
    """The names a hop's key may stand under, best first: with the port, then bare, as ssh does it."""
    if hop.host_key_alias:
        return (hop.host_key_alias.lower(),)
    host = hop.host.lower()
    return (host,) if hop.port == 22 else (f"[{host}]:{hop.port}", host)


def lookup(hop: Hop, trust_file: Path) -> list[Entry]:
    """All lines that speak of this hop, from the user's files and ours."""
    entries = list(read([*hop.known_hosts, trust_file]))
    found = [[entry for entry in entries if entry.matches(name)] for name in names(hop)]
    keys = next((some for some in found if any(not entry.marker for entry in some)), [])
    marked = [entry for some in found for entry in some if entry.marker]
    return [entry for entry in keys if not entry.marker] + marked


def offer(entries: Sequence[Entry]) -> list[str]:
    """Host key algorithms to offer, those of known keys first: another type would look like a change."""
    known = [entry.key_type for entry in entries if not entry.marker]
    ordered = sorted(ALGORITHMS, key=lambda key_type: key_type not in known)
    return [algorithm for key_type in ordered for algorithm in ALGORITHMS[key_type]]


def verify(
    hop: Hop,
    key_type: str,
    blob: bytes,
    entries: Sequence[Entry],
    trust_file: Path,
    confirm: Callable[[str, str, str], bool] | None,
) -> None:
    """Return if the key is the hop's, else HostKeyError. `confirm(label, fingerprint, key_type)` asks."""
    for entry in entries:
        if entry.marker == "@revoked" and entry.blob == blob:
            raise _revoked(hop, entry, blob)
    hostkey_rules.check(hop, key_type, blob)
    known = [entry for entry in entries if not entry.marker and entry.key_type in ALGORITHMS]
    if any(entry.blob == blob for entry in known):
        return
    if known:
        raise _changed(hop, known, key_type, blob)
    if not hop.restrictions.new_hosts:
        raise _strict(hop, key_type, blob)
    if confirm is None or not confirm(hop.label, fingerprint(blob), key_type):
        raise _unknown(hop, entries, key_type, blob, asked=confirm is not None)
    trust(trust_file, names(hop)[0], key_type, blob)


def verify_address(hop: Hop, address: str, blob: bytes, trust_file: Path) -> None:
    """CheckHostIP of the ssh config: HostKeyError if the host's address is known with other keys only."""
    here = replace(hop, host=address, host_key_alias=None)
    known = [entry for entry in lookup(here, trust_file) if not entry.marker]
    if known and not any(entry.blob == blob for entry in known):
        raise HostKeyError(
            f"its address {address} is known with another host key ({known[0].file} line {known[0].line}), "
            "and the ssh config has CheckHostIP yes",
            hop=hop.label,
            remedy="Ask the machine's administrators which machine has this address now.",
        )


def fingerprint(blob: bytes) -> str:
    """As `ssh-keygen -l` shows it: "SHA256:…"."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def trust(trust_file: Path, name: str, key_type: str, blob: bytes) -> None:
    """Append one line to our own file (0600); whole lines, so that two processes may do it at once."""
    trust_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = f"{name} {key_type} {base64.b64encode(blob).decode()}\n".encode()
    descriptor = os.open(trust_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _revoked(hop: Hop, entry: Entry, blob: bytes) -> HostKeyError:
    return HostKeyError(
        f"its host key {fingerprint(blob)} is revoked ({entry.file}, line {entry.line})",
        hop=hop.label,
        remedy="Do not connect. Ask the machine's administrators.",
    )


def _changed(hop: Hop, known: Sequence[Entry], key_type: str, blob: bytes) -> HostKeyError:
    places = ", ".join(f"{entry.file} line {entry.line}" for entry in known)
    files = dict.fromkeys(str(entry.file) for entry in known)
    forget = [as_typed(["ssh-keygen", "-R", names(hop)[0], "-f", file]) for file in files]
    return HostKeyError(
        f"its host key has changed: it shows {key_type} {fingerprint(blob)}, but another one is known ({places})",
        hop=hop.label,
        remedy="Somebody may be listening in, or the machine was installed anew. Only if its administrators "
        f"confirm the new fingerprint, forget the old key: {'; '.join(forget)}",
    )


def _strict(hop: Hop, key_type: str, blob: bytes) -> HostKeyError:
    return HostKeyError(
        f"its host key is not known: {key_type} {fingerprint(blob)}, and the ssh config has StrictHostKeyChecking yes",
        hop=hop.label,
        remedy="Compare the fingerprint with the administrators', and put the key into known_hosts yourself.",
    )


def _unknown(hop: Hop, entries: Sequence[Entry], key_type: str, blob: bytes, asked: bool) -> HostKeyError:
    cause = f"its host key is not known: {key_type} {fingerprint(blob)}"
    for entry in entries:
        if entry.marker == "@cert-authority":
            cause += f" ({entry.file}, line {entry.line} trusts an authority; certificates are not read here)"
    remedy = "Compare this fingerprint with the administrators', and accept it "
    remedy += (
        "by typing its end when asked again."
        if asked
        else "once where you can type: jupyter gpu-kernel login NAME"
    )
    return HostKeyError(cause, hop=hop.label, remedy=remedy, login=not asked)
