"""What the ssh config demands of a host key besides known_hosts: RevokedHostKeys, RequiredRSASize."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator

from ...errors import HostKeyError
from .route import Hop

_KRL = b"SSHKRL\n\0"  # how ssh-keygen's binary lists begin


def check(hop: Hop, key_type: str, blob: bytes) -> None:
    """Return if the key is permitted, else HostKeyError. As in ssh, a list that cannot be read permits none."""
    for file in hop.restrictions.revoked:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise _refused(hop, f"RevokedHostKeys {file} cannot be read: {error.strerror}") from None
        if data.startswith(_KRL):
            raise _refused(
                hop, f"RevokedHostKeys {file} is a binary list, which only the system's ssh can read"
            )
        if blob in _keys(data):
            raise HostKeyError(
                f"its host key is revoked (RevokedHostKeys {file})",
                hop=hop.label,
                remedy="Do not connect. Ask the machine's administrators.",
            )
    if key_type == "ssh-rsa" and rsa_bits(blob) < hop.restrictions.rsa_bits:
        raise _refused(
            hop, f"its RSA key has {rsa_bits(blob)} bits, RequiredRSASize is {hop.restrictions.rsa_bits}"
        )


def rsa_bits(blob: bytes) -> int:
    """The length of the modulus in a public RSA key; 0 if it is none."""
    try:
        start = 0
        for _ in range(3):  # the type, the exponent, the modulus
            (length,) = struct.unpack_from(">I", blob, start)
            field = blob[start + 4 : start + 4 + length]
            start += 4 + length
        return int.from_bytes(field, "big").bit_length()
    except struct.error:
        return 0


def _keys(data: bytes) -> Iterator[bytes]:
    """The public keys of a text file, one a line."""
    for line in data.splitlines():
        for word in line.split():
            if word.startswith(b"AAAA"):
                try:
                    yield base64.b64decode(word)
                except binascii.Error:
                    continue


def _refused(hop: Hop, cause: str) -> HostKeyError:
    return HostKeyError(
        cause, hop=hop.label, remedy="Correct the ssh config, or ask the machine's administrators."
    )
