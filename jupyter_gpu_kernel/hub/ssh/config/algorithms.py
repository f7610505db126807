"""The algorithms that we offer a server: the secure ones of paramiko that the ssh configuration permits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

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
KEY_EXCHANGES = (
    "mlkem768x25519-sha256",  # where the library cryptography has it
    *(CURVE25519, CURVE25519_OLD_NAME),
    *("ecdh-sha2-nistp256", "ecdh-sha2-nistp384", "ecdh-sha2-nistp521"),
    *(
        "diffie-hellman-group16-sha512",
        "diffie-hellman-group-exchange-sha256",
        "diffie-hellman-group14-sha256",
    ),
)
HOST_KEYS: dict[
    str, tuple[str, ...]
] = {  # key types, as known_hosts names them, and the algorithms to offer for each
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
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


@dataclass(frozen=True)
class Algorithms:
    """The algorithms to negotiate with one server, the preferred ones first."""

    host_keys: tuple[str, ...] = tuple(one for some in HOST_KEYS.values() for one in some)
    ciphers: tuple[str, ...] = CIPHERS
    macs: tuple[str, ...] = MACS
    key_exchanges: tuple[str, ...] = KEY_EXCHANGES
    user_keys: tuple[str, ...] = USER_KEYS

    def offering(self, host_keys: Sequence[str]) -> Algorithms:
        """Return these with the host keys' algorithms in this order, unless the configuration has one of its own."""
        if self.host_keys != tuple(one for one in ALGORITHMS.host_keys if one in self.host_keys):
            return self
        return replace(self, host_keys=tuple(one for one in host_keys if one in self.host_keys))

    def exhausted(self) -> Iterator[str]:
        """Yield the directives that leave nothing with which to connect."""
        kinds = {
            "HostKeyAlgorithms": self.host_keys,
            "Ciphers": self.ciphers,
            "MACs": self.macs,
            "KexAlgorithms": self.key_exchanges,
        }
        yield from (directive for directive, left in kinds.items() if not left)

    def signatures(self, key_type: str) -> tuple[str, ...]:
        """Return the permitted signature algorithms of a user's key of this type."""
        possible = HOST_KEYS["ssh-rsa"] if key_type == "ssh-rsa" else (key_type,)
        return tuple(one for one in possible if one in self.user_keys)


ALGORITHMS = Algorithms()


def read_algorithms(chosen: Callable[[str], str | None]) -> Algorithms:
    """Return those of our algorithms that the ssh configuration permits; `chosen` gives a directive's value unless it
    is the default."""

    def permitted(ours: Sequence[str], directive: str) -> tuple[str, ...]:
        return tuple(select(ours, chosen(directive.lower())))

    return Algorithms(
        permitted(ALGORITHMS.host_keys, "HostKeyAlgorithms"),
        permitted(CIPHERS, "Ciphers"),
        permitted(MACS, "MACs"),
        permitted(KEY_EXCHANGES, "KexAlgorithms"),
        permitted(USER_KEYS, "PubkeyAcceptedAlgorithms"),
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
