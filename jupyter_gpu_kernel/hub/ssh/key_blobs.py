"""Public keys and certificates as bytes, as in SSH messages and in the files of ssh-keygen. No I/O."""

from __future__ import annotations

import struct

CERTIFICATE = "-cert-v01@openssh.com"  # how the types of certificates end


def public_part(blob: bytes) -> bytes:
    """Return what follows the type, and in a certificate also the nonce: the key's own fields. b"" if it is neither."""
    try:
        kind, rest = _field(blob)
        if kind.endswith(CERTIFICATE.encode()):
            _, rest = _field(rest)
    except struct.error:
        return b""
    return rest


def rsa_bits(blob: bytes) -> int:
    """Return the length of the modulus in a public RSA key or its certificate; 0 if it is not one."""
    if not blob[4:].startswith(b"ssh-rsa"):
        return 0
    try:
        _, rest = _field(public_part(blob))  # the exponent
        modulus, _ = _field(rest)
    except struct.error:
        return 0
    return int.from_bytes(modulus, "big").bit_length()


def _field(data: bytes) -> tuple[bytes, bytes]:
    """Split off the first field, which begins with its length."""
    (length,) = struct.unpack_from(">I", data)
    return data[4 : 4 + length], data[4 + length :]
