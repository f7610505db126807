"""A SIGTERM that the kernel's guard has not taken yet, because C code holds Python's lock (the GIL): seen from outside.

The kernel blocks SIGTERM, so until its guard takes it the system lists it as pending; who sent it only the guard
learns. This file reads /proc and must not know what a SIGTERM means.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Callable

from ..loop import Loop
from ..relay.executions import Executions
from .kernel_process import KernelProcess

EVERY = 0.5
"""Seconds between two looks; what two in a row see is told."""
_PENDING = re.compile(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", re.MULTILINE)


class PendingSigterm:
    """`begin()` when the kernel may have work: as long as cells are open from then on, `on_pending()` once for each."""

    def __init__(
        self, loop: Loop, kernel: KernelProcess, cells: Executions, on_pending: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._kernel = kernel
        self._cells = cells
        self._on_pending = on_pending
        self._looks = False
        self._seen = 0  # how often in a row

    def begin(self) -> None:
        """Nothing, if it looks already."""
        if not self._looks:
            self._looks = True
            self._loop.later(EVERY, self._look)

    def _look(self) -> None:
        pid = self._kernel.pid if self._cells.open() else 0
        self._looks = pid != 0
        self._seen = self._seen + 1 if pid and sigterm_pends(pid) else 0
        if self._seen == 2:
            self._on_pending()
        if pid:
            self._loop.later(EVERY, self._look)


def sigterm_pends(pid: int) -> bool:
    """Whether a SIGTERM has been sent to this process that it has not taken."""
    try:
        status = Path("/proc", str(pid), "status").read_text(errors="replace")
    except OSError:  # it has just ended
        return False
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in _PENDING.findall(status))
