"""The file of a kernel's log, from which the successor of a killed keeper makes the state that the keeper had.

The file has a checkpoint of the state, then the changes since. It is written before what it says can be seen by the hub
or the kernel, so it survives the process, though not the machine. A new checkpoint is written to another file, which
then replaces the file. Checkpoint and changes are pickles: the file is in the kernel's own folder, and only the same
program reads it. While the disk fails, the log goes on in memory.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from operator import attrgetter
from pathlib import Path
from typing import Any, Callable, List, Optional, Set, Tuple

from ...wire.files import replace_file
from ...wire.runtime import Runtime
from ..kernel_settings import KernelSettings
from .hub_queue import HubQueue
from .state import LogState

NAME = "messages"
"""The name of the file in the kernel's folder."""
SIZE = 64 * 1024 * 1024
"""A new checkpoint is due when the changes, and the files that only the last checkpoint needs, have more bytes than
this, and more than twice those of the last checkpoint; messages that the hub has not acknowledged do not count."""
RETRY = 60.0
"""Seconds after which the file is written again, with all that it lacks, if the disk has failed."""
_BUFFER = 64 * 1024
"""Bytes of changes that are written at once. A larger message is written as it is, without a copy."""
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class LogFile:
    """`add` changes of the `state`, which has them already; the file has them after `flush`. Neither raises OSError.

    found: Whether a killed keeper has left its log.
    """

    def __init__(
        self, runtime: Runtime, folder: Path, settings: KernelSettings, report: Callable[[str], object]
    ) -> None:
        """`folder`: the kernel's own one. `settings`: journal_memory_mib and journal_cap_mib. `report(text)` is called
        once for each problem."""
        self._runtime = runtime
        self._report_problem = report
        self._reported: Set[str] = set()
        self._path = folder / NAME
        self._fd = -1
        self._works = self._checkpoint_due = True
        self._retry_at = 0.0
        self._unwritten: List[Tuple[str, float, Tuple[Any, ...]]] = []
        self._checkpoint_size = self._size = 0  # bytes: of the checkpoint, and of the changes since
        state = self._read()
        self.found = state is not None
        self.state = state or LogState(runtime, HubQueue(folder, settings))
        self.flush()

    def add(self, change: str, now: float, arguments: Tuple[Any, ...]) -> None:
        """The state has changed: see the effect `Logged`. It must be added before the next `flush`, which may write a
        checkpoint of the state. The arguments must not change before."""
        self._unwritten.append((change, now, arguments))

    def flush(self) -> None:
        """Write the changes to the file, so that they survive this process."""
        if not self._unwritten and not self._checkpoint_due:
            return
        self._report_problems_of_queue()
        if not self._works and self._runtime.monotonic() >= self._retry_at:
            self._works = self._checkpoint_due = True
        try:
            if self._works:
                self._write()
        except OSError as error:  # a successor must not find what is no longer true
            self._works, self._retry_at = False, self._runtime.monotonic() + RETRY
            self.close()
            with contextlib.suppress(OSError):
                self._path.unlink()
            self._report(f"the log cannot be written, so a killed keeper would lose output: {error.strerror}")
        if not self._works:
            self.state.queue.segments.remove_unused()
        self._unwritten, self._checkpoint_due = [], False

    def close(self) -> None:
        """Close the file, and leave it to a successor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _read(self) -> Optional[LogState]:
        try:
            with open(self._path, "rb") as file:
                state: LogState = pickle.load(file)
                state.runtime = self._runtime
                with contextlib.suppress(EOFError, pickle.UnpicklingError):  # the last change is not whole
                    while True:
                        name, state.now, arguments = pickle.load(file)
                        attrgetter(name)(state)(*arguments)
            return state
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever is wrong with the file, the kernel needs a keeper
            self._report(f"the log of the killed keeper cannot be read: {type(error).__name__}: {error}")
            return None

    def _write(self) -> None:
        if not self._checkpoint_due:
            self._append()
            used = self.state.unacknowledged_size  # the checkpoint would have it again
            garbage = self._size + self.state.queue.segments.unused_size - used
            self._checkpoint_due = garbage > max(SIZE, 2 * self._checkpoint_size)
        if self._checkpoint_due:
            checkpoint = pickle.dumps(self.state, pickle.HIGHEST_PROTOCOL)
            self.close()
            replace_file(self._path, checkpoint)
            self._fd = os.open(str(self._path), _FLAGS)
            self._checkpoint_size, self._size = len(checkpoint), 0
            self.state.queue.segments.remove_unused()

    def _append(self) -> None:
        with open(self._fd, "ab", buffering=_BUFFER, closefd=False) as file:
            for change in self._unwritten:
                pickle.dump(change, file, pickle.HIGHEST_PROTOCOL)
            self._size = file.tell() - self._checkpoint_size

    def _report_problems_of_queue(self) -> None:
        """Report what went wrong with the files of the messages that wait. A successor that repeats the changes might
        not meet the same problems, so it gets a checkpoint of what is there now."""
        if not self.state.queue:
            self._reported.clear()
        problems = self.state.queue.segments.problems
        while problems:
            self._checkpoint_due = True
            self._report(problems.pop())

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._report_problem(text)
