"""Why a hop needs the system's ssh program: what its ssh configuration asks for, and paramiko cannot do.

The reasons are in words. `directives.py` has the directives by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ...transport.process import run_quietly
from .. import hostkeys
from ..sign_in.keys import CERTIFICATE, agent_keys, is_token_key
from . import algorithms, directives, ssh_config
from .directives import first, switched
from .route import Hop

_KLIST_TIMEOUT = 5.0  # seconds


def refused(hop: Hop) -> Iterator[str]:
    """Yield what only the ssh program can follow: without it the hop is refused, with this name."""
    if hop.proxy_command:
        yield f"ProxyCommand {hop.proxy_command}"
    yield from directives.unsupported(hop.values, ssh_config.defaults())
    yield from algorithms.forbidding(hop.values, ssh_config.defaults())
    for directive in ("IdentityFile", "CertificateFile"):  # only ssh replaces tokens in names of files
        names = hop.values.get(directive.lower(), ())
        yield from (f"{directive} {name}" for name in names if "%" in name or "${" in name)


def reasons(hop: Hop) -> Iterator[str]:
    """Yield why the ssh program is taken for this hop if the user has not chosen a transport: what `refused` yields,
    and ways to sign in that paramiko does not have, and may do without."""
    yield from refused(hop)
    if switched(hop.values, "gssapiauthentication", False) and has_ticket():
        yield "GSSAPIAuthentication yes, and there is a Kerberos ticket"
    if switched(hop.values, "hostbasedauthentication", False):
        yield "HostbasedAuthentication yes"
    if (provider := first(hop.values, "pkcs11provider", "none")) != "none":
        yield f"PKCS11Provider {provider}"
    yield from (f"the FIDO key {file}" for file in hop.identity_files if is_token_key(file))
    yield from certificates(hop)
    for entry in hostkeys.lookup(hop, Path(os.devnull)):
        if entry.marker == "@cert-authority":
            yield f"the certificate authority for hosts in {entry.file}, line {entry.line}"


def certificates(hop: Hop) -> Iterator[str]:
    """Yield the user's certificates, which paramiko does not offer."""
    named = ssh_config.files(hop.values, "certificatefile")
    files = named or [Path(f"{key}-cert.pub") for key in hop.identity_files]
    yield from (f"the certificate {file}" for file in files if file.is_file())
    if not hop.identities_only:
        with agent_keys(hop) as held:
            if any(key.get_name().endswith(CERTIFICATE) for key in held):
                yield "a certificate in the ssh agent"


def has_ticket() -> bool:
    """Whether the user has a Kerberos ticket that has not expired."""
    if sys.platform == "win32":
        return True  # that of the domain, which ssh asks for itself
    try:
        return run_quietly(["klist", "-s"], _KLIST_TIMEOUT).returncode == 0
    except OSError:  # there is no klist, with which tickets come
        return False
