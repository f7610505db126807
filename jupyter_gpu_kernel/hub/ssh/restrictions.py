"""What the user's ssh configuration forbids for one host: authentication methods, unknown host keys, and algorithms.

A directive that restricts is either honoured, or the route is refused by an error that names it; none is ignored. A
directive that only permits more than we do is not read. We offer a server the secure algorithms of paramiko that the
configuration permits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import paramiko

from ...errors import RouteError

METHODS = ("publickey", "keyboard-interactive", "password")
_REFUSED = ("knownhostscommand", "bindinterface", "refuseconnection")
_NAMES = {
    "bindinterface": "BindInterface",
    "knownhostscommand": "KnownHostsCommand",
    "refuseconnection": "RefuseConnection",
}
Values = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Restrictions:
    """Algorithm lists as in the ssh configuration; `None` where it does not change the default."""

    ciphers: str | None = None
    macs: str | None = None
    key_exchanges: str | None = None
    host_key_algorithms: str | None = None
    user_key_algorithms: str | None = None
    methods: tuple[str, ...] = METHODS
    asks: bool = True
    """Whether the user may be asked for anything (BatchMode)."""
    tries: int = 3
    new_hosts: bool = True
    """Whether the user may accept an unknown host key (StrictHostKeyChecking)."""
    check_address: bool = False
    """Whether the host's address is checked too (CheckHostIP)."""
    revoked: tuple[Path, ...] = ()
    rsa_bits: int = 1024
    family: str = "any"
    bind: str = ""


UNRESTRICTED = Restrictions()


def read_restrictions(
    values: Values, defaults: Values, hop: str, files: Callable[[str], Sequence[Path]]
) -> Restrictions:
    """Return the restrictions in `values`; `defaults` are the values of a host without configuration. Raises
    RouteError, with the directive, if one cannot be honoured. `files` makes paths of a directive's value."""

    def one(*keys: str) -> str:
        return next((values[key][0] for key in keys if values.get(key)), "")

    def chosen(*keys: str) -> str | None:
        """Return the value if it is not the default."""
        return next((values[k][0] for k in keys if values.get(k) and values[k] != defaults.get(k)), None)

    for key in _REFUSED:
        if one(key) not in ("", "none"):
            raise _refused(f"{_NAMES[key]} {one(key)}", hop)
    tries, rsa_bits = one("numberofpasswordprompts"), one("requiredrsasize")
    return Restrictions(
        ciphers=chosen("ciphers"),
        macs=chosen("macs"),
        key_exchanges=chosen("kexalgorithms"),
        host_key_algorithms=chosen("hostkeyalgorithms"),
        user_key_algorithms=chosen("pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes"),
        methods=_methods(values, hop),
        asks=one("batchmode") not in ("yes", "true"),
        tries=min(int(tries), 3) if tries.isdigit() else 3,
        new_hosts=one("stricthostkeychecking") not in ("yes", "true"),
        check_address=chosen("checkhostip") in ("yes", "true"),
        revoked=tuple(files(one("revokedhostkeys"))),
        rsa_bits=int(rsa_bits) if rsa_bits.isdigit() else 1024,
        family=one("addressfamily") or "any",
        bind=one("bindaddress"),
    )


def select(ours: Sequence[str], text: str | None) -> list[str]:
    """Return those of `ours` that a list of the ssh configuration permits, in its order. The list may begin with +, -
    or ^, and contain wildcards."""
    if not text or text.startswith("+"):
        return list(ours)
    patterns = text.lstrip("-^").split(",")
    named = [one for pattern in patterns for one in ours if fnmatchcase(one, pattern.strip())]
    others = [one for one in ours if one not in named]
    if text.startswith("-"):
        return others
    return list(dict.fromkeys(named + others if text.startswith("^") else named))


def _methods(values: Values, hop: str) -> tuple[str, ...]:
    """Return the permitted authentication methods in the configuration's order."""
    switches = {
        "publickey": ("pubkeyauthentication",),
        "keyboard-interactive": ("kbdinteractiveauthentication", "challengeresponseauthentication"),
        "password": ("passwordauthentication",),
    }
    off = {
        method
        for method, keys in switches.items()
        if any((values.get(key) or ["yes"])[0] in ("no", "false") for key in keys)
    }
    preferred = (values.get("preferredauthentications") or [""])[0]
    wanted = [one.strip() for one in preferred.split(",")] if preferred else METHODS
    methods = tuple(one for one in wanted if one in METHODS and one not in off)
    if not methods:
        cause = (
            f"PreferredAuthentications {preferred}"
            if preferred
            else "PubkeyAuthentication no, together with no for every other way to sign in,"
        )
        raise _refused(cause, hop)
    return methods


def _refused(directive: str, hop: str) -> RouteError:
    return RouteError(
        f"{directive} in the ssh configuration is not supported",
        hop=hop,
        remedy="Remove it for this host.",
    )


# --- algorithms

# The preferred ones first: GCM is twice as fast as the other ciphers. Nothing with SHA-1, MD5, CBC or 3DES.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
MACS = (
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-512-etm@openssh.com",
    "hmac-sha2-256",
    "hmac-sha2-512",
)
CURVE25519 = "curve25519-sha256"
CURVE25519_OLD_NAME = "curve25519-sha256@libssh.org"  # the same algorithm, before it was standardised
KEY_EXCHANGES: tuple[str, ...] = tuple(
    name
    for known in paramiko.Transport._preferred_kex  # type: ignore[attr-defined]
    for name in ((CURVE25519, known) if known == CURVE25519_OLD_NAME else (known,))
)
USER_KEYS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
    "sk-ssh-ed25519@openssh.com",  # these two through the agent only
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_RSA = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}  # a key's type, and the algorithms that it can sign with


@dataclass(frozen=True)
class Algorithms:
    """The algorithms to negotiate with one server, the preferred ones first."""

    host_keys: tuple[str, ...]
    ciphers: tuple[str, ...] = CIPHERS
    macs: tuple[str, ...] = MACS
    key_exchanges: tuple[str, ...] = KEY_EXCHANGES
    user_keys: tuple[str, ...] = USER_KEYS

    def can_sign(self, key_type: str) -> bool:
        """Whether a user's key of this type may be used."""
        return any(one in self.user_keys for one in _RSA.get(key_type, (key_type,)))


def permitted(restrictions: Restrictions, host_keys: Sequence[str], hop: str) -> Algorithms:
    """Return our algorithms that the ssh configuration permits; `host_keys` keep their order.

    Raises RouteError if none of a kind is left.
    """
    allowed = select(host_keys, restrictions.host_key_algorithms)
    return Algorithms(
        _non_empty([one for one in host_keys if one in allowed], "HostKeyAlgorithms", hop),
        _non_empty(select(CIPHERS, restrictions.ciphers), "Ciphers", hop),
        _non_empty(select(MACS, restrictions.macs), "MACs", hop),
        _non_empty(select(KEY_EXCHANGES, restrictions.key_exchanges), "KexAlgorithms", hop),
        tuple(select(USER_KEYS, restrictions.user_key_algorithms)),
    )


def _non_empty(left: Sequence[str], directive: str, hop: str) -> tuple[str, ...]:
    if left:
        return tuple(left)
    raise RouteError(
        f"none of the {directive} in the ssh configuration is supported",
        hop=hop,
        remedy=f"Permit another one for this host with {directive} (docs/troubleshooting.md lists the supported ones).",
    )
