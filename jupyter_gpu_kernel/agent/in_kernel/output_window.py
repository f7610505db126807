"""Slows the writers of output in the kernel while the keeper has too much of it to read: no queue between them grows
beyond a bound in bytes, and nothing is left out.

Every so many bytes a message of iopub carries a mark: how much was sent up to it. The keeper returns the mark when it
has handled that message (`keeper_watch.py`). What was sent since the last returned mark is not read yet. While that is
more than a window, these wait: threads that print, also what child processes print, and those that publish displays.
The threads that answer on the control channel or report for the guard never wait, so interrupts and statuses pass.

Nobody waits before the first mark was returned. A keeper that is stopped returns no mark: then a little output passes
every few seconds, so that the kernel goes on, and its memory grows slowly. If the keeper is killed, its successor gets
what was not read (`unread_messages.py`), and nothing passes until it reads: so what is kept has a limit, too. The idle
status after a request has a mark, so that an idle kernel keeps nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import mmap
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, Sequence, Set

from ..kernel_protocol import add_mark, message_parts
from .unread_messages import UnreadOutput, as_bytes, is_of_keeper

WINDOW = 8 * 1024 * 1024
"""Bytes of output that the keeper may have to read: enough to keep it busy."""
PIECE = 1024 * 1024
"""Characters of text that a stream collects before they are sent, and bytes of a message that counts as large."""
PATIENCE = 10.0
"""Seconds without progress after which another piece passes, of all that wait together."""
_MARK_EVERY = PIECE // 2
_POLL_INTERVAL = 0.002
_SENT, _READ, _ACTIVE, _EXTRA, _ORPHANED, _PASSES_AT = range(6)


class OutputWindow:
    """`send` and `read` count bytes; `wait` returns when more may be written. Forked children wait for the same window.

    There are no locks, since a signal's handler may print while its thread is anywhere in here. What was sent is
    counted in one thread, and what was read in another.
    """

    def __init__(self, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._counts = memoryview(mmap.mmap(-1, 6 * 8)).cast("Q")  # in memory that forked children share
        self._marked = 0
        self._process = os.getpid()
        self._system: Set[threading.Thread] = set()
        self._local = threading.local()
        self.unread = UnreadOutput()

    @property
    def full(self) -> bool:
        """Whether the keeper has too much to read."""
        counts = self._counts
        return bool(counts[_ACTIVE]) and counts[_SENT] - counts[_READ] > WINDOW + counts[_EXTRA]

    def never_waits(self, thread: threading.Thread) -> None:
        """This thread must not be delayed by output."""
        self._system.add(thread)

    @contextlib.contextmanager
    def passing(self, passing: bool = True) -> Iterator[None]:
        """In this context the thread never waits. With `passing=False` it waits again, also inside such a context."""
        before = getattr(self._local, "passing", False)
        self._local.passing = passing
        try:
            yield
        finally:
            self._local.passing = before

    def may_wait(self) -> bool:
        """Whether this thread is one that waits."""
        return not getattr(self._local, "passing", False) and threading.current_thread() not in self._system

    def wait(self) -> None:
        """Wait while the window is full, unless the keeper makes no progress for too long."""
        while self.full and self.may_wait():
            time.sleep(_POLL_INTERVAL)
            if not self._counts[_ORPHANED] and self._milliseconds() >= self._counts[_PASSES_AT]:
                self._progressed()
                self._counts[_EXTRA] += PIECE

    def _progressed(self) -> None:
        self._counts[_PASSES_AT] = self._milliseconds() + int(self._patience * 1000)

    def _milliseconds(self) -> int:
        return int(self._clock() * 1000)

    def send(self, frames: Sequence[Any], send: Callable[[Sequence[Any]], object]) -> None:
        """Count a message that is given to iopub's socket by `send(frames)`, perhaps with a mark among its frames.

        A forked child gives it to its parent, which counts it. Statuses of a keeper's own requests do not count: by
        them, the next keeper notices that it receives.
        """
        frames = list(map(as_bytes, frames))
        parts = message_parts(frames)
        is_status = len(parts) == 4 and b'"status"' in parts[0]
        if os.getpid() != self._process or (is_status and is_of_keeper(parts)):
            send(frames)
            return
        self._counts[_SENT] += sum(map(len, frames))
        total = self._counts[_SENT]
        if total - self._marked >= _MARK_EVERY or (is_status and b'"idle"' in parts[3]):
            self._marked, frames = total, add_mark(frames, total)
        self.unread.send(total, lambda: send(frames))

    def read(self, total: int) -> None:
        """The keeper has handled the message that carries this mark, and so all before it."""
        self._counts[_READ] = max(self._counts[_READ], min(total, self._counts[_SENT]))
        self._progressed()
        self._counts[_EXTRA] = 0
        self._counts[_ACTIVE] = 1
        self.unread.read(self._counts[_READ])

    def keeper_ended(self) -> None:
        """What was sent is kept, and what follows waits for a successor."""
        self._counts[_ORPHANED] = self._counts[_ACTIVE] = 1
        self.unread.hold()

    def taken_over(self) -> None:
        """A successor reads."""
        self._progressed()
        self._counts[_ORPHANED] = 0
        self.unread.release()

    def abandoned(self) -> None:
        """There is no successor: nobody will read, and nobody waits."""
        self._counts[_ORPHANED] = self._counts[_ACTIVE] = 0
        self.unread.drop()


def _size(frame: Any) -> int:
    return int(getattr(frame, "nbytes", 0)) or len(frame)


def thread_members(base: Any, window: OutputWindow) -> Dict[str, Callable[..., Any]]:
    """Return the methods by which a subclass of this IOPubThread keeps the window."""

    def send_multipart(thread: Any, frames: Sequence[Any], *args: Any, **named: Any) -> None:
        window.wait()
        base.send_multipart(thread, frames, *args, **named)
        if sum(map(_size, frames)) >= PIECE and window.may_wait():
            _hand_over(thread)

    def really_send(thread: Any, frames: Sequence[Any], *args: Any, **named: Any) -> None:
        window.send(frames, lambda frames: base._really_send(thread, frames, *args, **named))

    def start(thread: Any) -> None:
        window.never_waits(thread.thread)
        window.unread.bind(thread.schedule)
        base.start(thread)

    return {"send_multipart": send_multipart, "_really_send": really_send, "start": start}


def kernel_members(base: Any, window: OutputWindow) -> Dict[str, Callable[..., Any]]:
    """Return the method by which a subclass of this kernel waits only while it runs a cell's code: an interrupt that
    ends a wait before or after the code would also end the request, which would have no reply."""

    async def execute_request(kernel: Any, *request: Any) -> None:
        with window.passing():
            handled = base.execute_request(kernel, *request)
            if inspect.isawaitable(handled):
                await handled

    return {"execute_request": execute_request}


def _hand_over(thread: Any) -> None:
    """Wait until iopub's thread has sent what was scheduled: large messages wait in no other queue."""
    done = threading.Event()
    thread.schedule(done.set)
    done.wait(PATIENCE)


def limit_streams(window: OutputWindow) -> None:
    """Make what is printed keep the window."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "pub_thread"):
            _limit(stream, window)
            _discard_copy(stream)


def _discard_copy(stream: Any) -> None:
    """ipykernel also writes what child processes print to where it came from: the keeper's file, which would grow. Its
    log keeps the descriptor of that file: the keeper reads there why a kernel ended."""
    if getattr(stream, "_original_stdstream_copy", None) is not None:
        stream._original_stdstream_copy = os.open(os.devnull, os.O_WRONLY)


def _limit(stream: Any, window: OutputWindow) -> None:
    base = type(stream)
    base_write: Callable[[Any, str], int] = base.write
    unsent = 0

    def write(stream: Any, string: str) -> int:
        nonlocal unsent
        unsent += len(string)
        if unsent < PIECE:  # a program may print a million short lines
            return base_write(stream, string)
        for at in range(0, len(string), PIECE):
            window.wait()  # before: else each thread that waits keeps a piece
            base_write(stream, string[at : at + PIECE])
            flush(stream)
        unsent = 0
        return len(string)

    def flush(stream: Any) -> None:
        base.flush(stream)
        window.wait()

    stream.__class__ = type(base.__name__, (base,), {"write": write, "flush": flush})
