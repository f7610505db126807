"""A channel of paramiko that carries a stream."""

from __future__ import annotations

import contextlib
import threading

import paramiko

_CLOSE_TIMEOUT = 1.0  # seconds


class ChannelEnds:
    """One command on an SSH server."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def read(self, size: int) -> bytes:
        """Return 1 to `size` bytes; b"" once the command has ended, or the channel is closed or broken."""
        try:
            return self._channel.recv(size)
        except (EOFError, paramiko.SSHException):
            return b""

    def read_stderr(self, size: int) -> bytes:
        """The same for stderr."""
        try:
            return self._channel.recv_stderr(size)
        except (EOFError, paramiko.SSHException):
            return b""

    def write(self, data: memoryview) -> int:
        """Block until some bytes are sent. Raises OSError if the command has ended."""
        try:
            sent = self._channel.send(data[: 1 << 20])  # type: ignore[arg-type]
        except (EOFError, paramiko.SSHException) as error:
            raise OSError(f"the stream has ended: {error}") from error
        if not sent:
            raise OSError("the stream has ended")
        return int(sent)

    def close_stdin(self) -> None:
        """Close the command's stdin."""
        with contextlib.suppress(EOFError, paramiko.SSHException):  # ended by itself already
            self._channel.shutdown_write()

    def wait(self, timeout: float) -> int | None:
        """Return the exit status, or None if it is not known within so many seconds; -1 if it was lost, or the command
        was killed by a signal."""
        self._channel.status_event.wait(timeout)
        return self._channel.exit_status if self._channel.exit_status_ready() else None

    def close(self) -> None:
        """Close the channel, which may block on a dead connection, hence the thread."""
        closer = threading.Thread(target=self._close, name="ssh close", daemon=True)
        closer.start()
        closer.join(_CLOSE_TIMEOUT)

    def _close(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # already closed
            self._channel.close()
