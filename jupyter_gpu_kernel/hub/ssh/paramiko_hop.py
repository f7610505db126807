"""One hop of a connection by paramiko: its sessions, and the channels that carry their streams."""

from __future__ import annotations

import contextlib
import time

import paramiko

from ..transport.stream import CommandStream, return_within
from .hostkeys import fingerprint
from .route_connection import OpenHop, SessionRefused
from .transport import WINDOW, Transport

_CLOSE_TIMEOUT = 1.0  # seconds
_BROKEN = (paramiko.SSHException, OSError, EOFError)


class ParamikoHop(OpenHop):
    """A machine with which paramiko has exchanged keys."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(fingerprint(transport.get_remote_server_key().asbytes()))
        self.transport = transport

    def alive(self) -> bool:
        """Whether the connection was neither closed nor broken."""
        return self.transport.is_active()

    def open(self, command: str, timeout: float) -> CommandStream:
        """Run a command in a new session. Raises SessionRefused or OSError."""
        end = time.monotonic() + timeout
        try:
            channel = self.transport.open_session(WINDOW, timeout=timeout)
            stream = CommandStream(ChannelEnds(channel))
            with stream.closing_after(max(end - time.monotonic(), 0.05)):  # exec_command has no timeout
                channel.exec_command(command)
        except paramiko.ChannelException as error:
            raise SessionRefused(error.text) from error
        except _BROKEN as error:
            timed_out = str(error) == "Timeout opening channel."
            raise (TimeoutError if timed_out else OSError)(str(error)) from error
        return stream

    def responds(self, within: float) -> bool:
        """Whether the server opens a session, or refuses to, within so many seconds."""
        try:
            self.transport.open_session(timeout=within).close()
        except paramiko.ChannelException:
            return True
        except _BROKEN:
            return False
        return True

    def close(self) -> None:
        """Close the connection to this machine, and so all its channels."""
        with contextlib.suppress(*_BROKEN):  # already closed
            self.transport.close()


class ChannelEnds:
    """A command on an SSH server, which a channel of paramiko carries."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def read(self, size: int) -> bytes:
        """Return 1 to `size` bytes; b"" once the command has ended, or the channel is closed or broken."""
        try:
            return self._channel.recv(size)
        except (EOFError, paramiko.SSHException):
            return b""

    def read_stderr(self, size: int) -> bytes:
        """Return 1 to `size` bytes of stderr; b"" once the command has ended, or the channel is closed or broken."""
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
        """Close the channel."""
        # TimeoutError: the connection is dead. Others: the channel is closed already.
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            return_within(_CLOSE_TIMEOUT, self._channel.close)
