"""What an ended kernel started and left behind, also by setsid or nohup: asked to end, then made to.

It knows the keeper's loop and processes; not why the kernel ended.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import List

from ..loop import Loop
from .processes import GRACE, SETUP, TAG, Process, tagged


class Cleanup:
    """`end` after every end of the kernel's process; `kill` when nothing of the kernel may stay."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        """`folder`: the kernel's."""
        self._loop = loop
        self._id, self._root = folder.name, str(folder.parent.parent)
        self._left: List[Process] = []

    @property
    def alive(self) -> bool:
        """Whether some of it still runs."""
        self._left = [process for process in self._left if process.alive]
        return bool(self._left)

    def end(self, tag: str = TAG) -> List[Process]:
        """SIGTERM now, SIGKILL after a moment; what a restarted kernel starts meanwhile is not touched. `tag`: SETUP
        for what the set-up lines started, which a restarted kernel still needs."""
        found = tagged(self._id, tag, self._root)
        _send(found, signal.SIGTERM)
        if found:
            self._left += found
            self._loop.later(GRACE, lambda: _send(found, signal.SIGKILL))
        return found

    def kill(self) -> None:
        """SIGKILL for whatever there is."""
        for tag in (TAG, SETUP):
            _send(tagged(self._id, tag, self._root), signal.SIGKILL)


def _send(processes: List[Process], number: int) -> None:
    for process in processes:
        process.send(number)
