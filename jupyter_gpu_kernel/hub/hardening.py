"""Keeps the memory of this process from others: no core file, and on Linux no process of the same user reads it."""

from __future__ import annotations

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def keep_memory_private() -> None:
    """For a process through which passwords and keys pass. Best effort: a system may have neither way."""
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
