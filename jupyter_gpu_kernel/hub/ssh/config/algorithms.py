"""The algorithms that paramiko offers to a server, and the directives of the ssh configuration that forbid one of them.

The offer is always the same. A host for which the configuration permits less is reached by the ssh program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

# The preferred ones first: GCM is twice as fast as the other ciphers. Nothing with SHA-1, MD5, CBC or 3DES.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")
MACS = (
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-512-etm@openssh.com",
    "hmac-sha2-256",
    "hmac-sha2-512",
)
KEY_EXCHANGES = (
    "mlkem768x25519-sha256",  # where the library cryptography has it
    "curve25519-sha256@libssh.org",  # paramiko does not know the standard name (its issue 2221)
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
TOKEN_KEYS = ("sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com")  # through the agent only
_HOST_ALGORITHMS = tuple(one for some in HOST_KEYS.values() for one in some)
USER_KEYS = (*_HOST_ALGORITHMS, *TOKEN_KEYS)
OFFERED = {
    "Ciphers": CIPHERS,
    "MACs": MACS,
    "KexAlgorithms": KEY_EXCHANGES,
    "HostKeyAlgorithms": _HOST_ALGORITHMS,
    "PubkeyAcceptedAlgorithms": USER_KEYS,
}
"""What paramiko offers, under the names of the directives that can forbid it."""


def forbidding(values: Mapping[str, Sequence[str]], defaults: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the directives in `values` that forbid an algorithm of the offer, as "Name value".

    `defaults`: the values of ssh without any configuration. A list can only forbid what ssh itself would use: an
    algorithm that this ssh does not know yet is in no list.
    """
    for name, offered in OFFERED.items():
        given, usual = (one.get(name.lower(), ()) for one in (values, defaults))
        if any(_permit(usual, one) and not _permit(given, one) for one in offered):
            yield f"{name} {', '.join(given)}"


def _permit(lists: Sequence[str], algorithm: str) -> bool:
    """Whether this algorithm is in each of these lists, as `ssh -G` prints them: they may contain wildcards."""
    return all(any(fnmatchcase(algorithm, pattern) for pattern in one.split(",")) for one in lists)
