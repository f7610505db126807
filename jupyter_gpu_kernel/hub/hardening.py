"""Protects the memory of this process: no core file, and on Linux no access for processes of the same user."""

from __future__ import annotations

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def keep_memory_private() -> None:
    """Protect a process that handles passwords and keys, as far as the system can."""
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
