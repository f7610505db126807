"""The file of a kernel's log, from which the successor of a killed keeper makes the state that the keeper had.

The file has a checkpoint of the state and of the messages that wait, then the changes since. It is written before what
it says can be seen by the hub or the kernel, so it survives the process, though not the machine. A new checkpoint is
written to another file, which then replaces the file. Checkpoint and changes are pickles: the file is in the kernel's
own folder, and only the same program reads it. While the disk fails, the log goes on in memory.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from operator import attrgetter
from pathlib import Path
from typing import Any, Callable, List, Set, Tuple

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
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
_BUFFER = 64 * 1024
"""Bytes of changes that are written at once. A larger message is written as it is, without a copy."""


class LogFile:
    """`add` records changes that the `state` has had before the call, and `take` takes messages from the `queue`; the
    file has both after `flush`. None of these methods raises OSError.

    found: Whether a killed keeper has left its log, which is complete.
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
        self.state, self.queue = LogState(), HubQueue(folder, settings)
        self.found = self._read()
        self.flush()

    @property
    def unacknowledged(self) -> int:
        """The approximate number of bytes that the hub has not acknowledged; 0 if it has everything."""
        return self.state.unacknowledged_size + (self.queue.size or bool(self.queue))

    def add(self, change: str, now: float, arguments: Tuple[Any, ...]) -> None:
        """The state has changed: see the effect `Logged`. It must be added before the next `flush`, which may write a
        checkpoint of the state. The arguments must not change before."""
        self._unwritten.append((change, now, arguments))
        if self._change_queue(change, arguments):
            self.queue.reduce()

    def take(self, size: int) -> Tuple[List[bytes], bool]:
        """Take messages of about so many bytes from the queue, and return them, and whether there are more: the state
        has to have this change next."""
        self._unwritten.append(("take", self._runtime.time(), (size,)))
        return self._take(size)

    def _take(self, size: int) -> Tuple[List[bytes], bool]:
        messages = self.queue.take(self._runtime, size)
        return messages, bool(self.queue)

    def _change_queue(self, change: str, arguments: Tuple[Any, ...]) -> bool:
        """Return whether messages were moved to disk, as there were too many in memory."""
        if change == "leave":
            self.queue.clear()
        return change == "wait" and self.queue.put(*arguments)

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
            self.queue.segments.remove_unused()
        self._unwritten, self._checkpoint_due = [], False

    def close(self) -> None:
        """Close the file, and leave it to a successor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                self._writer.close()  # also after an error: it must not write to another file with this descriptor
            with contextlib.suppress(OSError):
                os.close(fd)

    def _read(self) -> bool:
        """Return whether there is a file, which is read."""
        empty = self.state, self.queue
        try:
            with open(self._path, "rb") as file:
                self.state, self.queue = pickle.load(file)
                with contextlib.suppress(EOFError, pickle.UnpicklingError):  # the last changes are not whole
                    while True:
                        for change in pickle.load(file):
                            self._repeat(*change)
            if self.state.is_complete:
                return True
            self.state, self.queue = empty
            return False
        except FileNotFoundError:
            return False
        except Exception as error:  # whatever is wrong with the file, the kernel needs a keeper
            self.state, self.queue = empty
            self._report(f"the log of the killed keeper cannot be read: {type(error).__name__}: {error}")
            return False

    def _repeat(self, change: str, now: float, arguments: Tuple[Any, ...]) -> None:
        self.state.now = now
        self._change_queue(change, arguments)
        attrgetter(change)(self.state)(*(self._take(*arguments) if change == "take" else arguments))

    def _write(self) -> None:
        if not self._checkpoint_due:
            self._append()
            used = self.state.unacknowledged_size  # the checkpoint would have it again
            garbage = self._size + self.queue.segments.unused_size - used
            self._checkpoint_due = garbage > max(SIZE, 2 * self._checkpoint_size)
        if self._checkpoint_due:
            checkpoint = pickle.dumps((self.state, self.queue), pickle.HIGHEST_PROTOCOL)
            self.close()
            replace_file(self._path, checkpoint)
            self._fd = os.open(str(self._path), _FLAGS)
            self._writer = open(self._fd, "ab", buffering=_BUFFER, closefd=False)  # noqa: SIM115
            self._checkpoint_size, self._size = len(checkpoint), 0
            self.queue.segments.remove_unused()

    def _append(self) -> None:
        pickle.dump(self._unwritten, self._writer, pickle.HIGHEST_PROTOCOL)
        self._writer.flush()
        self._size = self._writer.tell() - self._checkpoint_size

    def _report_problems_of_queue(self) -> None:
        """Report what went wrong with the files of the messages that wait. A successor that repeats the changes might
        not meet the same problems, so it gets a checkpoint of what is there now."""
        if self._reported and not self.queue:
            self._reported.clear()
        problems = self.queue.segments.problems
        while problems:
            self._checkpoint_due = True
            self._report(problems.pop())

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._report_problem(text)
