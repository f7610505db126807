"""The algorithms that we offer a server: paramiko's good ones, less what the user's ssh config takes away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import paramiko

from ...errors import RouteError
from .restrictions import Restrictions, select

# The best first. GCM is twice as fast as the other ciphers here. Nothing with SHA-1, MD5, CBC or 3DES.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
MACS = (
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-512-etm@openssh.com",
    "hmac-sha2-256",
    "hmac-sha2-512",
)
CURVE25519 = "curve25519-sha256"
CURVE25519_OLD_NAME = "curve25519-sha256@libssh.org"  # of the same algorithm, from before it was a standard
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
    "sk-ssh-ed25519@openssh.com",  # these through the agent
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_RSA = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}  # a key's type, and the algorithms that it can sign with


@dataclass(frozen=True)
class Algorithms:
    """What may be agreed upon with one server, the best first."""

    host_keys: tuple[str, ...]
    ciphers: tuple[str, ...] = CIPHERS
    macs: tuple[str, ...] = MACS
    key_exchanges: tuple[str, ...] = KEY_EXCHANGES
    user_keys: tuple[str, ...] = USER_KEYS

    def can_sign(self, key_type: str) -> bool:
        """Whether a user's key of this type may be used."""
        return any(one in self.user_keys for one in _RSA.get(key_type, (key_type,)))


def permitted(limits: Restrictions, host_keys: Sequence[str], hop: str) -> Algorithms:
    """Ours that the ssh config allows too; `host_keys` keep their order. RouteError where none is left."""
    allowed = select(host_keys, limits.host_key_algorithms)
    return Algorithms(
        _some([one for one in host_keys if one in allowed], "HostKeyAlgorithms", hop),
        _some(select(CIPHERS, limits.ciphers), "Ciphers", hop),
        _some(select(MACS, limits.macs), "MACs", hop),
        _some(select(KEY_EXCHANGES, limits.key_exchanges), "KexAlgorithms", hop),
        tuple(select(USER_KEYS, limits.user_key_algorithms)),
    )


def _some(left: Sequence[str], directive: str, hop: str) -> tuple[str, ...]:
    if left:
        return tuple(left)
    raise RouteError(
        f"its ssh config has a list of {directive} of which none is supported here",
        hop=hop,
        remedy=f"Allow one more for this host with {directive} (docs/troubleshooting.md lists ours).",
    )
