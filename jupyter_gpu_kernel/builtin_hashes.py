"""Hash functions without OpenSSL: its library takes 3.4 MiB in each launcher, which signs two short messages."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

_MODULES = ("_blake2", "_md5", "_sha1", "_sha3")
_SHA2 = ("_sha2", "_sha256")
"""The names of the module for SHA-2 from Python 3.12 on, and before."""


def use_builtin_hashes() -> None:
    """Let hashlib and hmac use Python's own functions in this process, if it has them. Call it before their import."""
    modules: dict[str, Any] = sys.modules
    if "_hashlib" in modules or "hashlib" in modules or "hmac" in modules or not _are_built_in():
        return
    modules["_hashlib"] = None  # its import fails now, and hashlib then takes the others
    try:
        import hmac

        hmac.new(b"key", b"", "sha256")
    except (ImportError, AttributeError, ValueError):  # a system's changed Python that needs OpenSSL
        modules.pop("hmac", None)
        modules.pop("hashlib", None)
    finally:
        del modules["_hashlib"]


def _are_built_in() -> bool:
    """Some systems leave them out of their Python."""
    return all(find_spec(name) for name in _MODULES) and any(find_spec(name) for name in _SHA2)
