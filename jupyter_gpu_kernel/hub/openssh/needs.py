"""Which hops need the system's ssh program, and why: what their ssh configuration asks for and paramiko cannot do."""

from __future__ import annotations

import base64
import binascii
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ..ssh import hostkeys
from ..ssh.keys import CERTIFICATE, open_agent
from ..ssh.restrictions import switched
from ..ssh.route import Hop
from ..transport.process import run_quietly
from .program import find_program, is_available

_KLIST_TIMEOUT = 5.0  # seconds
_AGENT_TIMEOUT = 2.0  # seconds
_MASTER_TIMEOUT = 2.0  # seconds for a ControlMaster on this machine to answer


def has_ticket() -> bool:
    """Whether the user has a Kerberos ticket that has not expired."""
    if sys.platform == "win32":
        return True  # that of the domain, which ssh asks for itself
    program = shutil.which("klist")
    if program is None:
        name = os.environ.get("KRB5CCNAME") or f"FILE:/tmp/krb5cc_{os.getuid()}"
        return Path(name.removeprefix("FILE:")).is_file()
    try:
        return run_quietly([program, "-s"], _KLIST_TIMEOUT).returncode == 0
    except OSError:
        return False


def open_master(hop: Hop) -> Path | None:
    """Return the ControlPath of this hop if a master of the user's own listens there, and not one of another user."""
    path = Path(_one(hop, "controlpath") or "none")
    if sys.platform == "win32" or not is_available():
        return None
    try:
        if path.stat().st_uid != os.getuid():
            return None
        listens = run_quietly(find_program().check(path), _MASTER_TIMEOUT).returncode == 0
    except OSError:
        return None
    return path if listens else None


def reasons(
    hop: Hop,
    has_ticket: Callable[[], bool] = has_ticket,
    open_master: Callable[[Hop], Path | None] = open_master,
) -> tuple[str, ...]:
    """Return why this hop needs the ssh program, in words for a list; none if paramiko can do all of it."""
    if hop.kind != "ssh":
        return ()
    return tuple(_reasons(hop, has_ticket, open_master))


def _reasons(
    hop: Hop, has_ticket: Callable[[], bool], open_master: Callable[[Hop], Path | None]
) -> Iterator[str]:
    master = open_master(hop)
    if master is not None:
        yield f"your own connection is open (ControlPath {master})"
    if hop.proxy_command:
        yield f"ProxyCommand {hop.proxy_command}"
    yield from hop.restrictions.unsupported
    yield from _sign_in(hop, has_ticket)
    yield from _token_keys(hop)
    yield from _certificates(hop)
    for entry in hostkeys.lookup(hop, Path(os.devnull)):
        if entry.marker == "@cert-authority":
            yield f"the certificate authority for hosts in {entry.file}, line {entry.line}"


def _sign_in(hop: Hop, has_ticket: Callable[[], bool]) -> Iterator[str]:
    if switched(hop.values, "gssapiauthentication", False) and has_ticket():
        yield "GSSAPIAuthentication yes, and there is a Kerberos ticket"
    if switched(hop.values, "hostbasedauthentication", False):
        yield "HostbasedAuthentication yes"


def _token_keys(hop: Hop) -> Iterator[str]:
    if _one(hop, "pkcs11provider") not in ("", "none"):
        yield f"PKCS11Provider {_one(hop, 'pkcs11provider')}"
    for file in hop.identity_files:
        if _is_token_key(file):
            yield f"the FIDO key {file}"


def _certificates(hop: Hop) -> Iterator[str]:
    files = hop.certificate_files or [Path(f"{key}-cert.pub") for key in hop.identity_files]
    yield from (f"the certificate {file}" for file in files if file.is_file())
    agent = open_agent(hop, _AGENT_TIMEOUT) if not hop.identities_only else None
    if agent is not None:
        try:
            if any(key.get_name().endswith(CERTIFICATE) for key in agent.get_keys()):
                yield "a certificate in the ssh agent"
        finally:
            agent.close()


def _is_token_key(file: Path) -> bool:
    """Whether a key file only refers to a FIDO token: its type, in the public part, begins with “sk-”."""
    try:
        if not file.is_file():
            return False
        words = file.read_bytes()[:16384].split(b"\n-----END")[0].split()
        data = base64.b64decode(b"".join(words[4:])) if words[:1] == [b"-----BEGIN"] else b"".join(words[:1])
    except (OSError, binascii.Error):
        return False
    return b"sk-ssh-ed25519@" in data[:256] or b"sk-ecdsa-sha2-nistp256@" in data[:256]


def _one(hop: Hop, key: str) -> str:
    return (hop.values.get(key) or [""])[0]
