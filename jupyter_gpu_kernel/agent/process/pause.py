"""Pauses a kernel while it is not yet known whether the front end that left is about to restart it.

A paused kernel cannot write a file which a restart is to prevent, and it loses nothing if no restart follows. The hub
ends the pause; if it does not, a timer does. If the keeper dies, a helper process does: a stopped kernel would neither
run nor notice that it needs another keeper.
"""

from __future__ import annotations

import signal
import subprocess
import time
from typing import Callable, Optional

from ..loop import Loop, Timer
from ..story import Story
from .kernel_process import KernelProcess

MAX_PAUSE = 120.0
"""Seconds. By then a new kernel has told its notebook, even if its Python is on a slow file system."""
DETACH_WITHIN = 5.0
"""Seconds. A hub that is still attached so long after its request for a pause has not detached at all."""
_RESUME = 'trap "" HUP INT TERM; read -r _; kill -s CONT -- "-$1"'
"""A shell script that continues the process group at the end of its input, which comes when the keeper dies."""


class Pause:
    """`begin` stops the kernel's process group, `end` continues it. Both may be called again."""

    def __init__(self, loop: Loop, kernel: KernelProcess, story: Story) -> None:
        self._loop = loop
        self._kernel = kernel
        self._story = story
        self._timer: Optional[Timer] = None
        self._detaching: Optional[Timer] = None
        self._resumer: Optional[subprocess.Popen[bytes]] = None

    def begin_when(self, detached: Callable[[], bool]) -> None:
        """Begin once `detached()`: a hub asks after it has detached, but the keeper may read that later."""
        if self._detaching is None:
            self._begin_when(detached, time.monotonic() + DETACH_WITHIN)

    def _begin_when(self, detached: Callable[[], bool], deadline: float) -> None:
        self._detaching = None
        if detached():
            self.begin()
        elif time.monotonic() < deadline:
            self._detaching = self._loop.later(0.02, lambda: self._begin_when(detached, deadline))

    def begin(self) -> None:
        """Stop the processes, unless the helper process cannot be started."""
        if self._timer is None and self._kernel.pid:
            try:
                self._resumer = _resumer(self._kernel.pid)
            except OSError as error:
                self._story.tell("pause", f"not paused: {error}")
                return
            self._timer = self._loop.later(MAX_PAUSE, self.end)
            self._story.tell("pause", "paused: its front end left, perhaps to restart it")
            self._kernel.signal_group(signal.SIGSTOP)

    def end(self) -> None:
        """Continue the processes."""
        if self._detaching is not None:
            self._detaching.cancel()
            self._detaching = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._kernel.signal_group(signal.SIGCONT)
            self._story.tell("pause", "continued")
        if self._resumer is not None:
            self._resumer.kill()
            self._resumer.communicate()
            self._resumer = None


def _resumer(group: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _RESUME, "sh", str(group)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
