"""Pauses a kernel while it is not yet known whether the front end that left is about to restart it.

A paused kernel cannot write a file which a restart is to prevent, and it loses nothing if no restart follows. The hub
ends the pause; if it does not, a timer does. If the keeper dies, a helper process does: a stopped kernel would neither
run nor notice that it needs another keeper.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Optional

from ..loop import Loop, Timer
from ..process_control import ChildProcess, ProcessControl
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

    def __init__(self, loop: Loop, processes: ProcessControl, kernel: KernelProcess, story: Story) -> None:
        self._loop = loop
        self._processes = processes
        self._kernel = kernel
        self._story = story
        self._timer: Optional[Timer] = None
        self._detaching: Optional[Timer] = None
        self._resumer: Optional[_Resumer] = None

    def begin_when(self, detached: Callable[[], bool]) -> None:
        """Begin once `detached()`: a hub asks after it has detached, but the keeper may read that later."""
        if self._detaching is None:
            self._begin_when(detached, self._loop.time() + DETACH_WITHIN)

    def _begin_when(self, detached: Callable[[], bool], deadline: float) -> None:
        self._detaching = None
        if detached():
            self.begin()
        elif self._loop.time() < deadline:
            self._detaching = self._loop.later(0.02, lambda: self._begin_when(detached, deadline))

    def begin(self) -> None:
        """Stop the processes, unless the helper process cannot be started."""
        if self._timer is None and self._kernel.pid:
            try:
                self._resumer = _Resumer(self._processes, self._kernel.pid)
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
            self._resumer.end()
            self._resumer = None


class _Resumer:
    """The helper process, which continues the process group when we die."""

    def __init__(self, processes: ProcessControl, group: int) -> None:
        """OSError: it cannot be started."""
        read_fd, self._write_fd = os.pipe()
        try:
            command = ["/bin/sh", "-c", _RESUME, "sh", str(group)]
            self._process: ChildProcess = processes.start(command, stdin=read_fd)
        except BaseException:
            os.close(self._write_fd)
            raise
        finally:
            os.close(read_fd)

    def end(self) -> None:
        """End the helper process; the group stays as it is."""
        self._process.kill()
        self._process.wait()
        os.close(self._write_fd)
