"""How many files the hub may have open: each kernel needs up to 30, for its ports, their guards and their clients.

Shells start programs with a limit of 1,024 (macOS: 256), which a program may raise itself.
"""

from __future__ import annotations

import contextlib
import sys

_WANTED = (65_536, 10_240, 4_096)
"""Limits to try, the highest first: macOS refuses more than 10,240, whatever its hard limit says."""


def raise_limit() -> None:
    """Raise this process's limit as far as the system lets us, and never lower it."""
    if sys.platform == "win32":  # there is no such limit
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in _WANTED:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or limit <= soft:
            return
        with contextlib.suppress(ValueError, OSError):
            return resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
