"""The stdin and stdout of one command behind a ControlMaster, as a byte stream."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

from .mux import MuxSocket

_READ_SIZE = 1024 * 1024
_MAX_STDERR = 64 * 1024  # bytes of stderr that are kept


class SessionStream:
    """For one reader and one writer; `close` from any thread."""

    def __init__(self, control: Path, command: str, timeout: float) -> None:
        """Start the command. Raises MuxRefused if the server refuses the session, MuxError if the master has ended or
        does not answer in time."""
        self._session = MuxSocket(control, timeout)
        pairs = [socket.socketpair() for _ in range(3)]
        self._stdin, self._stdout, self._stderr = (ours for ours, _ in pairs)
        try:
            self._session.start_session(command, [theirs.fileno() for _, theirs in pairs])
        except BaseException:
            for ours, _ in pairs:
                ours.close()
            self._session.close()
            raise
        finally:
            for _, theirs in pairs:
                theirs.close()
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self.closed = False
        """Whether `close` was called."""
        self._status: int | None = None
        self._stdout_ended = False
        self._ended = threading.Event()
        self._tail = bytearray()
        self._drained = threading.Event()
        threading.Thread(target=self._wait, name="ssh session", daemon=True).start()
        threading.Thread(target=self._drain_stderr, name="ssh stderr", daemon=True).start()

    def read(self, size: int = _READ_SIZE, /) -> bytes:
        """Block for 1 to `size` bytes; b"" once the command has ended, or the stream is closed or broken."""
        with self._reading:
            try:
                data = self._stdout.recv(min(max(size, 1), _READ_SIZE))
            except OSError:
                return b""
        if not data:
            self._stdout_ended = True
            self.close_stdin()  # at once, as the master may take a moment to do so: a writer must not be deceived
        return data

    def write(self, data: bytes, /) -> None:
        """Block until all of `data` is taken. Raises OSError if the stream has ended."""
        with self._writing:
            self._stdin.sendall(data)

    def close_stdin(self) -> None:
        """Close the command's stdin."""
        with contextlib.suppress(OSError):  # ended by itself already
            self._stdin.shutdown(socket.SHUT_WR)

    def stderr_tail(self) -> str:
        """Return the last 64 KiB of stderr so far; after the end of stdout, its final state."""
        if self._stdout_ended or self._ended.is_set():
            self._drained.wait(1.0)
        return self._tail.decode("utf-8", "replace")

    @property
    def exit_status(self) -> int | None:
        """None while the command runs; -1 if it was lost."""
        return self._status

    def wait(self, timeout: float) -> int | None:
        """Return the exit status, or None if the command has not ended within so many seconds; -1 if it was lost."""
        self._ended.wait(timeout)
        return self._status

    def close(self) -> None:
        """Unblock reader and writer, and end the session."""
        self.closed = True
        self._session.end()
        for one in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(OSError):  # closed before
                one.shutdown(socket.SHUT_RDWR)
        with self._reading:
            self._stdout.close()
        with self._writing:
            self._stdin.close()

    def _wait(self) -> None:
        self._status = self._session.exit_status()
        self._ended.set()
        self._session.wait_for_end()
        self._session.close()

    def _drain_stderr(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._stderr.recv(_MAX_STDERR):
                self._tail += data
                del self._tail[:-_MAX_STDERR]
        self._stderr.close()
        self._drained.set()
