"""Starts programs on this machine: short ones, and those that carry a stream."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

if sys.platform == "linux":
    import fcntl

_PIPE_SIZE = 1024 * 1024  # bytes
_READ_SIZE = 1024 * 1024
_GRACE = 2.0  # seconds for a process to end after its stdin was closed, and again after SIGTERM
_NO_WINDOW = getattr(subprocess, "CREATE_NO_WINDOW", 0)  # Windows would open one, as the hub has no console


def run_quietly(words: Sequence[str], timeout: float) -> subprocess.CompletedProcess[bytes]:
    """Run a short program without input, and return its output. Raises OSError if the program cannot be started, and
    TimeoutError if it does not end within `timeout` (s)."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            creationflags=_NO_WINDOW,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{words[0]} did not end within {timeout:.0f} s") from error


def start_with_pipes(
    words: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a program with unbuffered pipes, and without a terminal: a program that would ask there fails instead.
    Raises OSError if it cannot be started."""
    return subprocess.Popen(
        words,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
        creationflags=_NO_WINDOW,
        start_new_session=True,
    )


def _enlarge(pipe: IO[bytes] | None) -> None:
    """Make a pipe larger, where the system lets us choose: Linux permits so much for all pipes of one user only."""
    if sys.platform == "linux" and pipe is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


class ProcessEnds:
    """A program of this machine that carries a stream, for one reader and one writer; `close` from any thread."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Start the process. Raises OSError if it cannot be started."""
        self._process = start_with_pipes(words, environment, folder)
        _enlarge(self._process.stdin)
        _enlarge(self._process.stdout)
        self._closed = threading.Event()
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._interrupt = os.pipe() if hasattr(select, "poll") else None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def read(self, size: int) -> bytes:
        """Block for 1 to `size` bytes; b"" once the process has ended, or the stream is closed."""
        assert self._process.stdout is not None
        with self._reading:
            if self._closed.is_set():
                return b""
            descriptor = self._process.stdout.fileno()
            self._wait_readable(descriptor)
            data = b"" if self._closed.is_set() else os.read(descriptor, min(max(size, 1), _READ_SIZE))
        if not data and not self._closed.is_set():
            self.close_stdin()  # the process may take a moment to end, and a writer must not be deceived
        return data

    def _wait_readable(self, descriptor: int) -> None:
        """Return when there is something to read, or the stream was closed. On Windows `os.read` waits instead: there
        only the end of the process ends it."""
        if sys.platform != "win32" and self._interrupt is not None:
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            waiting.register(self._interrupt[0], select.POLLIN)
            waiting.poll()

    def read_stderr(self, size: int) -> bytes:
        """Block for 1 to `size` bytes; b"" once nobody holds the process's stderr."""
        assert self._process.stderr is not None
        data = self._process.stderr.read(min(size, _READ_SIZE)) or b""
        if not data:
            self._process.stderr.close()
        return bytes(data)

    def write(self, data: memoryview) -> int:
        """Block until some bytes are written. Raises OSError if the process has ended."""
        assert self._process.stdin is not None
        with self._writing:
            if self._closed.is_set() or self._process.stdin.closed:
                raise OSError("the stream has ended")
            return self._process.stdin.write(data) or 0

    def close_stdin(self) -> None:
        """Close the process's stdin."""
        assert self._process.stdin is not None
        with self._writing, contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait(self, timeout: float) -> int | None:
        """Return the exit status, or None if the process has not ended within so many seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Unblock the reader, and end the process if it does not end by itself soon."""
        if not self._closed.is_set():
            self._closed.set()
            if self._interrupt is not None:
                os.write(self._interrupt[1], b".")
            threading.Thread(target=self._end, name="process end", daemon=True).start()

    def _end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        if self._writing.acquire(timeout=_GRACE):  # else a writer is blocked, until the process ends
            self._writing.release()
            self.close_stdin()
        if self.wait(_GRACE) is None:
            self._process.terminate()
            if self.wait(_GRACE) is None:
                self._process.kill()
                self._process.wait()
        self.close_stdin()
        with self._reading:
            self._process.stdout.close()
            for descriptor in self._interrupt or ():
                os.close(descriptor)
