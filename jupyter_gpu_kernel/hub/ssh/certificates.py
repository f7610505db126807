"""A user's SSH certificates: which file belongs to which key, and how paramiko is made to offer it.

This module knows no server and no hop. Whether a certificate is valid is for the server to say.
"""

from __future__ import annotations

from pathlib import Path

import paramiko
from paramiko.agent import AgentKey
from paramiko.pkey import PublicBlob

from .key_blobs import CERTIFICATE, public_part

_MAX_FILE = 256 * 1024  # bytes that are read of one


def whole(key: paramiko.PKey) -> paramiko.PKey:
    """Return an agent's key as it is offered. paramiko would name a certificate, and send only the key in it."""
    if isinstance(key, AgentKey) and key.get_name().endswith(CERTIFICATE):
        key.inner_key = None  # type: ignore[attr-defined]
    return key


def certificate_of(key: paramiko.PKey, file: Path) -> PublicBlob | None:
    """Return the certificate in `file`; None if there is none, or it is another key's."""
    try:
        certificate = PublicBlob.from_string(file.read_bytes()[:_MAX_FILE].decode("ascii", "replace"))
    except (OSError, ValueError):
        return None
    own = public_part(key.asbytes())
    return certificate if own and public_part(certificate.key_blob).startswith(own) else None


def offered_type(key: paramiko.PKey) -> str:
    """Return the type of what is offered: that of the certificate, if the key has one."""
    return str(key.public_blob.key_type if key.public_blob else key.get_name())
