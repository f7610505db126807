"""The algorithms that we offer to a server: the secure ones of paramiko that the ssh configuration permits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import paramiko

from ...errors import RouteError
from .restrictions import Restrictions, select

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
    """Return ours that the ssh configuration permits; `host_keys` keep their order. RouteError where none is left."""
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
