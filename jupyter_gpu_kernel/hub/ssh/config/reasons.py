"""Why a hop needs the system's ssh program: what its ssh configuration asks for, and paramiko cannot do.

`_REFUSED` and `_PREFERRED` have all rules, and directives.py the directives by name. A rule yields reasons in words.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ...transport.process import run_quietly
from .. import hostkeys
from ..sign_in.keys import CERTIFICATE, agent_keys, is_token_key
from . import algorithms, directives, ssh_config
from .directives import first, switched
from .route import Hop

_KLIST_TIMEOUT = 5.0  # seconds
Rule = Callable[[Hop], Iterator[str]]


def refused(hop: Hop) -> Iterator[str]:
    """Yield what only the ssh program can follow: without it the hop is refused, with this name."""
    for rule in _REFUSED:
        yield from rule(hop)


def reasons(hop: Hop) -> Iterator[str]:
    """Yield why the ssh program is taken for this hop if the user has not chosen a transport."""
    for rule in (*_REFUSED, *_PREFERRED):
        yield from rule(hop)


# --- refused without the ssh program


def _proxy_command(hop: Hop) -> Iterator[str]:
    if hop.proxy_command:
        yield f"ProxyCommand {hop.proxy_command}"


def _directives(hop: Hop) -> Iterator[str]:
    yield from directives.unsupported(hop.values, ssh_config.defaults())


def _algorithms(hop: Hop) -> Iterator[str]:
    yield from algorithms.forbidding(hop.values, ssh_config.defaults())


def _tokens(hop: Hop) -> Iterator[str]:
    """Names of files with tokens, which only ssh replaces."""
    for directive in ("IdentityFile", "CertificateFile"):
        for name in hop.values.get(directive.lower(), ()):
            if "%" in name or "${" in name:
                yield f"{directive} {name}"


# --- not refused, since paramiko may sign in by another method


def _kerberos(hop: Hop) -> Iterator[str]:
    if switched(hop.values, "gssapiauthentication", False) and has_ticket():
        yield "GSSAPIAuthentication yes, and there is a Kerberos ticket"


def _host_based(hop: Hop) -> Iterator[str]:
    if switched(hop.values, "hostbasedauthentication", False):
        yield "HostbasedAuthentication yes"


def _token_keys(hop: Hop) -> Iterator[str]:
    if (provider := first(hop.values, "pkcs11provider", "none")) != "none":
        yield f"PKCS11Provider {provider}"
    for file in hop.identity_files:
        if is_token_key(file):
            yield f"the FIDO key {file}"


def certificates(hop: Hop) -> Iterator[str]:
    """Yield the user's certificates, which paramiko does not offer."""
    files = hop.certificate_files or [Path(f"{key}-cert.pub") for key in hop.identity_files]
    yield from (f"the certificate {file}" for file in files if file.is_file())
    if not hop.identities_only:
        with agent_keys(hop) as held:
            if any(key.get_name().endswith(CERTIFICATE) for key in held):
                yield "a certificate in the ssh agent"


def _authorities(hop: Hop) -> Iterator[str]:
    for entry in hostkeys.lookup(hop, Path(os.devnull)):
        if entry.marker == "@cert-authority":
            yield f"the certificate authority for hosts in {entry.file}, line {entry.line}"


_REFUSED: tuple[Rule, ...] = (_proxy_command, _directives, _algorithms, _tokens)
_PREFERRED: tuple[Rule, ...] = (_kerberos, _host_based, _token_keys, certificates, _authorities)


def has_ticket() -> bool:
    """Whether the user has a Kerberos ticket that has not expired."""
    if sys.platform == "win32":
        return True  # that of the domain, which ssh asks for itself
    try:
        return run_quietly(["klist", "-s"], _KLIST_TIMEOUT).returncode == 0
    except OSError:  # there is no klist, with which tickets come
        return False
