"""A kernel is paused while it is not yet known whether the front end that left it means a restart.

A paused kernel writes no file which a restart is to prevent, and it loses nothing if no restart follows. The hub ends
the pause; if it does not, a timer does. If the keeper dies, a process that it has started for this does: a stopped
kernel would neither run nor notice that it needs another keeper. This file decides nothing.
"""

from __future__ import annotations

import signal
import subprocess
import time
from typing import Callable, Optional

from ..loop import Loop, Timer
from ..story import Story
from .kernel_process import KernelProcess

MOST = 120.0
"""Seconds: a new kernel whose Python comes from a slow file system has said by then for which notebook it is."""
DETACH_WITHIN = 5.0
"""Seconds after which a hub that asked for a pause is still attached because it wants to be."""
_RESUME = 'trap "" HUP INT TERM; read -r _; kill -s CONT -- "-$1"'
"""A shell's program: waits for the end of its input, which the keeper's death is, and continues the process group."""


class Pause:
    """`begin` stops the kernel's process group, `end` lets it go on; again is harmless."""

    def __init__(self, loop: Loop, kernel: KernelProcess, story: Story) -> None:
        self._loop = loop
        self._kernel = kernel
        self._story = story
        self._timer: Optional[Timer] = None
        self._detaching: Optional[Timer] = None
        self._resumer: Optional[subprocess.Popen[bytes]] = None

    def begin_when(self, detached: Callable[[], bool]) -> None:
        """Begin once `detached()`: a hub asks after it has detached, but the keeper may read that later."""
        self._begin_when(detached, time.monotonic() + DETACH_WITHIN)

    def _begin_when(self, detached: Callable[[], bool], deadline: float) -> None:
        if detached():
            self.begin()
        elif time.monotonic() < deadline:
            self._detaching = self._loop.later(0.02, lambda: self._begin_when(detached, deadline))

    def begin(self) -> None:
        """The processes stop, unless nothing could continue them after our death."""
        if self._timer is None and self._kernel.pid:
            try:
                self._resumer = _resumer(self._kernel.pid)
            except OSError as error:
                self._story.tell("pause", f"not paused: {error}")
                return
            self._timer = self._loop.later(MOST, self.end)
            self._story.tell("pause", "paused: its front end left, perhaps to restart it")
            self._kernel.signal_group(signal.SIGSTOP)

    def end(self) -> None:
        """The processes go on."""
        if self._detaching is not None:
            self._detaching.cancel()
            self._detaching = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._kernel.signal_group(signal.SIGCONT)
            self._story.tell("pause", "goes on")
        if self._resumer is not None:
            self._resumer.kill()
            self._resumer.communicate()
            self._resumer = None


def _resumer(group: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _RESUME, "sh", str(group)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
