"""A kernel is paused while it is not yet known whether the front end that left it means a restart.

A paused kernel writes no file which a restart is to prevent, and it loses nothing if no restart follows. The hub ends
the pause; if it does not, a timer does. If the keeper dies, a process that it has started for this does: a stopped
kernel would neither run nor notice that it needs another keeper. This file decides nothing.
"""

from __future__ import annotations

import signal
import subprocess
from typing import Optional

from ..loop import Loop, Timer
from ..story import Story
from .kernel_process import KernelProcess

MOST = 120.0
"""Seconds: a new kernel whose Python comes from a slow file system has said by then for which notebook it is."""
_RESUME = 'trap "" HUP INT TERM; read -r _; kill -s CONT -- "-$1"'
"""A shell's program: waits for the end of its input, which the keeper's death is, and continues the process group."""


class Pause:
    """`begin` stops the kernel's process group, `end` lets it go on; again is harmless."""

    def __init__(self, loop: Loop, kernel: KernelProcess, story: Story) -> None:
        self._loop = loop
        self._kernel = kernel
        self._story = story
        self._timer: Optional[Timer] = None
        self._resumer: Optional[subprocess.Popen[bytes]] = None

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
