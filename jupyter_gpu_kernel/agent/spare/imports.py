"""What a spare interpreter imports before it forks kernels, and whether that leaves it fit for it."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
from typing import Dict, Optional

from .. import procfs
from ..in_kernel import main as kernel_main

_LATE = (
    *("IPython.core.completerlib", "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect"),
    *("IPython.extensions.storemagic", "sqlite3", "tornado.platform.asyncio"),
)
"""Modules that ipykernel and IPython import only when a kernel starts, as far as a version has them."""


def import_kernel() -> Dict[str, Optional[str]]:
    """Import what every kernel imports, with the same settings as a kernel does. Return the environment variables that
    modules have set, or deleted (None), which the kernels must have, too."""
    before = dict(os.environ)
    kernel_main.restore_path()
    kernel_main.disable_debugger()
    importlib.import_module("ipykernel.kernelapp")
    for name in _LATE:
        with contextlib.suppress(Exception):  # another version; a kernel would fail by itself
            importlib.import_module(name)
    names = {*before, *os.environ}
    return {name: os.environ.get(name) for name in names if before.get(name) != os.environ.get(name)}


def is_clean() -> str:
    """Return "" if this process may fork kernels, or what it has that no fork may inherit."""
    if len(os.listdir("/proc/self/task")) > 1:
        return "it has several threads"
    if procfs.has_opened_gpus(os.getpid()):
        return "it has opened a GPU"
    if signal.getsignal(signal.SIGINT) != signal.default_int_handler:
        return "an imported module handles interrupts"
    return ""
