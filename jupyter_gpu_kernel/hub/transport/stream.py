"""The byte stream to a work node: the stdin and stdout of a command there; and a limit for calls that block too long.

This module knows no SSH.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Protocol, TypeVar

from ...wire.stream.frames import MAX_NOISE

READ_SIZE = 16 * 1024 * 1024
"""Bytes; no less than the SSH window, because paramiko is slow if a read leaves data in its buffer."""
_MAX_STDERR = 64 * 1024  # bytes of stderr that are kept
_LONGEST_MARK = 64  # bytes of what `read_until` looks for
_LAST_STDERR = 1.0  # seconds for the last bytes of stderr to come after the end of stdout
T = TypeVar("T")


class Stream(Protocol):
    """A byte stream to the node. Tests replace it with a pipe."""

    def read(self, size: int, /) -> bytes:
        """Block for 1 to `size` bytes; b"" at the end, or when closed."""

    def write(self, data: bytes, /) -> None:
        """Block until all data is sent. Raises OSError if the stream has ended."""

    def close(self) -> None:
        """Close the stream, from any thread; `read` and `write` return."""

    def stderr_tail(self) -> str:
        """Return the end of what the command behind the stream has written to stderr; "" if there is none."""


class Ends(Protocol):
    """What carries a command: an SSH channel, or a process of this machine. Methods block."""

    def read(self, size: int) -> bytes:
        """Return 1 to `size` bytes of stdout; b"" at the end, or when closed."""

    def read_stderr(self, size: int) -> bytes:
        """Return 1 to `size` bytes of stderr; b"" at the end, or when closed."""

    def write(self, data: memoryview) -> int:
        """Write some bytes to stdin, and return how many. Raises OSError if the command has ended."""

    def close_stdin(self) -> None:
        """Close stdin."""

    def wait(self, timeout: float) -> int | None:
        """Return the exit status, or None if it is not known within so many seconds; -1 if it was lost."""

    def close(self) -> None:
        """End the command, from any thread."""


class CommandStream:
    """The stdin and stdout of one command as a byte stream, for one reader and one writer; `close` from any thread."""

    def __init__(self, ends: Ends) -> None:
        self.closed = False
        """Whether `close` was called."""
        self._ends = ends
        self._unread = b""
        self._ended = False
        self._stderr = bytearray()
        self._drain = threading.Thread(target=self._drain_stderr, name="stream stderr", daemon=True)
        self._drain.start()

    def read(self, size: int = READ_SIZE, /) -> bytes:
        """Block for some bytes; b"" once the command has ended, or the stream is closed or broken."""
        data, self._unread = self._unread, b""
        if not data:
            with contextlib.suppress(OSError):
                data = self._ends.read(max(size, 1))
        self._ended = not data
        return data

    def unread(self, data: bytes) -> None:
        """Let the next `read` return this data, which was read before."""
        self._unread = data + self._unread

    def read_until(
        self, mark: re.Pattern[bytes], limit: int = MAX_NOISE
    ) -> tuple[bytes, re.Match[bytes] | None]:
        """Read until the mark, of at most 64 bytes, has come; `read` then returns what follows the mark.

        Return what was read, and the match: None if the stream has ended, or so many bytes have come without it."""
        received, searched = bytearray(), 0
        while (found := mark.search(received, searched)) is None:
            data = self.read() if len(received) < limit else b""
            if not data:
                return bytes(received), None
            searched = max(0, len(received) - _LONGEST_MARK)
            received += data
        self.unread(bytes(received[found.end() :]))
        return bytes(received[: found.end()]), found

    def ask(
        self, data: bytes, mark: re.Pattern[bytes], seconds: float
    ) -> tuple[bytes, re.Match[bytes] | None, bool]:
        """Write `data`, and read until the mark, as `read_until` does. Return in addition whether that took longer than
        so many seconds: then the stream is closed, and nothing counts as found."""
        with self.closing_after(seconds) as expired:
            with contextlib.suppress(OSError):  # the command has ended: its output says why
                self.write(data)
            received, found = self.read_until(mark)
        return received, None if expired.is_set() else found, expired.is_set()

    @contextlib.contextmanager
    def closing_after(self, seconds: float) -> Iterator[threading.Event]:
        """Close the stream if the block takes longer; the event is set then."""
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.close()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield expired
        finally:
            timer.cancel()

    def write(self, data: bytes, /) -> None:
        """Block until all of `data` is sent. Raises OSError if the stream has ended."""
        view = memoryview(data)
        while view:
            view = view[self._ends.write(view) :]

    def close_stdin(self) -> None:
        """Close the command's stdin."""
        with contextlib.suppress(OSError):  # ended by itself already
            self._ends.close_stdin()

    def wait(self, timeout: float) -> int | None:
        """Return the exit status, or None if it is not known within so many seconds; -1 if it was lost. It arrives
        shortly after the end of stdout."""
        return self._ends.wait(timeout)

    def close(self) -> None:
        """Unblock the reader and the writer, and end the command."""
        self.closed = True
        self._ends.close()

    def stderr_tail(self) -> str:
        """Return the last 64 KiB of stderr so far; after the end of stdout, its final state."""
        return self.final_stderr() if self._ended else self._stderr.decode("utf-8", "replace")

    def final_stderr(self) -> str:
        """Return the last 64 KiB of stderr, of a command that has ended."""
        self._drain.join(_LAST_STDERR)
        return self._stderr.decode("utf-8", "replace")

    def forget_stderr(self) -> None:
        """Forget the stderr so far, which belongs to a command of a shell that runs others later."""
        self._stderr.clear()

    def _drain_stderr(self) -> None:
        # stderr may share its window with stdout: unread, it would block both.
        with contextlib.suppress(OSError):
            while data := self._ends.read_stderr(READ_SIZE):
                self._stderr += data
                del self._stderr[:-_MAX_STDERR]


class NotReturned(TimeoutError):
    """A call has not returned in time. `thread` may still wait for it."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__("timed out")
        self.thread = thread


def return_within(seconds: float | None, call: Callable[[], T]) -> T:
    """Return the result of a call, which runs in a thread. After so many seconds raise NotReturned, and abandon the
    thread."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # raised again where the result is awaited
            result.set_exception(error)

    thread = threading.Thread(target=run, name="call with time limit", daemon=True)
    thread.start()
    if not wait([result], seconds).done:
        raise NotReturned(thread)
    return result.result()
