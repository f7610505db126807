"""How the hub and a client prove to each other that they have the key, by HMAC-SHA256 of random bytes of both.

multiprocessing.connection would use HMAC-MD5 before Python 3.12, which systems in FIPS mode refuse.
"""

from __future__ import annotations

import hmac
import os
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any

_SIZE = 32
"""Bytes of each side's random bytes, and of a proof."""


def accept_client(connection: Connection[Any, Any], key: bytes) -> None:
    """The hub's side. Raise AuthenticationError if the client does not have the key."""
    ours = os.urandom(_SIZE)
    connection.send_bytes(ours)
    answer = connection.recv_bytes(2 * _SIZE)
    theirs, proof = answer[:_SIZE], answer[_SIZE:]
    _check(proof, _proof(key, b"client", ours, theirs))
    connection.send_bytes(_proof(key, b"hub", ours, theirs))


def prove_to_hub(connection: Connection[Any, Any], key: bytes) -> None:
    """The client's side. Raise AuthenticationError if the hub does not have the key, EOFError if it does not accept
    ours."""
    theirs, ours = connection.recv_bytes(_SIZE), os.urandom(_SIZE)
    connection.send_bytes(ours + _proof(key, b"client", theirs, ours))
    _check(connection.recv_bytes(_SIZE), _proof(key, b"hub", theirs, ours))


def _proof(key: bytes, side: bytes, of_hub: bytes, of_client: bytes) -> bytes:
    """`side`: whose proof it is, so that neither can be given back as the other's."""
    return hmac.new(key, side + of_hub + of_client, "sha256").digest()


def _check(proof: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(proof, expected):
        raise AuthenticationError("the other side does not have the key")
