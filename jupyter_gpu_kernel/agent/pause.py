"""A kernel is paused while it is not yet known whether the front end that left it means a restart.

A paused kernel writes no file which a restart is to prevent, and it loses nothing if no restart follows. The hub ends
the pause; if it does not, a timer does. This file decides nothing.
"""

from __future__ import annotations

import signal
from typing import Optional

from .kernel import Kernel
from .loop import Loop, Timer
from .story import Story

MOST = 120.0
"""Seconds: a new kernel whose Python comes from a slow file system has said by then for which notebook it is."""


class Pause:
    """`begin` stops the kernel's process group, `end` lets it go on; again is harmless."""

    def __init__(self, loop: Loop, kernel: Kernel, story: Story) -> None:
        self._loop = loop
        self._kernel = kernel
        self._story = story
        self._timer: Optional[Timer] = None

    def begin(self) -> None:
        """The processes stop."""
        if self._timer is None and self._kernel.pid:
            self._timer = self._loop.later(MOST, self.end)
            self._story.tell("pause", "paused: its front end left, perhaps to restart it")
            self._kernel.signal_group(signal.SIGSTOP)

    def end(self) -> None:
        """The processes go on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._kernel.signal_group(signal.SIGCONT)
            self._story.tell("pause", "goes on")
