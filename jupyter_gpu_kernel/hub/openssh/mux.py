"""A client of OpenSSH's ControlMaster: opens sessions over its Unix socket, by the protocol that OpenSSH's file
PROTOCOL.mux specifies (version 4, since OpenSSH 5.6).

No `ssh` process is needed per session, and none can fall back to a connection of its own when the master is gone. This
module knows no hop and no meaning of the bytes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_HELLO, _VERSION = 0x00000001, 4
_NEW_SESSION, _ALIVE_CHECK = 0x10000002, 0x10000004
_OK_ALIVE, _SESSION_OPENED = 0x80000005, 0x80000006
_DENIED, _FAILURE, _EXIT_MESSAGE = 0x80000002, 0x80000003, 0x80000004
_NO_ESCAPE = 0xFFFFFFFF
_MAX_PACKET = 256 * 1024  # bytes; the master's own limit
_REQUEST = 1


class MuxError(OSError):
    """The master has ended, or does not answer as the protocol says."""


class MuxRefused(MuxError):
    """The master answered that the server refused the session."""


class MuxTimeout(MuxError):
    """The master has not answered in time."""


class MuxSocket:
    """A connection to a master, after the exchange of versions. It ends when the master does."""

    def __init__(self, path: Path, timeout: float) -> None:
        """Raises MuxError if no master of this user listens there."""
        if sys.platform == "win32":
            raise MuxError("there is no ControlMaster on Windows")
        self._deadline = time.monotonic() + timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if path.stat().st_uid != os.getuid():
                raise MuxError(f"{path} belongs to another user")
            self._socket.settimeout(timeout)
            self._socket.connect(str(path))
            self._send(struct.pack(">II", _HELLO, _VERSION))
            kind, version = struct.unpack_from(">II", self._receive(8))
            if (kind, version) != (_HELLO, _VERSION):
                raise MuxError(f"the master at {path} speaks version {version} of the protocol")
        except MuxError:
            self._socket.close()
            raise
        except OSError as error:
            self._socket.close()
            raise MuxError(f"no master at {path}: {error.strerror or error}") from error

    def check(self) -> None:
        """Raise MuxError unless the master answers."""
        self._send(struct.pack(">II", _ALIVE_CHECK, _REQUEST))
        (kind,) = struct.unpack_from(">I", self._receive(4))
        if kind != _OK_ALIVE:
            raise MuxError("the master does not answer as expected")

    def start_session(self, command: str, files: Sequence[int]) -> None:
        """Run `command` in the server's login shell with these three files as stdin, stdout and stderr; return once the
        server has opened the session. Raises MuxRefused, or MuxError."""
        flags = struct.pack(
            ">4II", 0, 0, 0, 0, _NO_ESCAPE
        )  # terminal, X11, agent, subsystem; escape character
        texts = b"".join(map(_string, (b"", command.encode())))
        self._send(struct.pack(">II", _NEW_SESSION, _REQUEST) + _string(b"") + flags + texts)
        for file in files:
            socket.send_fds(self._socket, [b"\0"], [file])
        packet = self._receive(8)
        kind, _ = struct.unpack_from(">II", packet)
        if kind in (_FAILURE, _DENIED):
            raise MuxRefused(_text(packet[8:]))
        if kind != _SESSION_OPENED:
            raise MuxError("the master does not answer as expected")

    def exit_status(self) -> int:
        """Block until the command has ended; return its exit status, or -1 if the server reported none."""
        self._deadline = 0.0
        self._socket.settimeout(None)
        try:
            while True:
                packet = self._receive(4)
                (kind,) = struct.unpack_from(">I", packet)
                if kind == _EXIT_MESSAGE and len(packet) >= 12:
                    return int(struct.unpack_from(">I", packet, 8)[0])
        except MuxError:
            return -1

    def wait_for_end(self) -> None:
        """Block until the master has passed on all output, which may come after the exit status. A session whose
        connection is closed before that loses the rest."""
        with contextlib.suppress(MuxError):
            while True:
                self._receive(4)

    @property
    def open(self) -> bool:
        """Whether the master is still there."""
        try:
            self._socket.settimeout(0)
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False

    def end(self) -> None:
        """Let the master end the session. Unblocks `exit_status` and `wait_for_end` in another thread."""
        with contextlib.suppress(OSError):  # the master has closed it
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, which no other thread uses."""
        self._socket.close()

    def _send(self, packet: bytes) -> None:
        try:
            self._socket.sendall(_string(packet))
        except OSError as error:
            raise MuxError(f"the master has ended: {error.strerror or error}") from error

    def _receive(self, least: int) -> bytes:
        """Return the next packet, of at least so many bytes."""
        (length,) = struct.unpack(">I", self._read(4))
        if not least <= length <= _MAX_PACKET:
            raise MuxError(f"the master sent a packet of {length} bytes")
        return self._read(length)

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            if self._deadline:
                self._socket.settimeout(max(self._deadline - time.monotonic(), 0.01))
            try:
                received = self._socket.recv_into(view)
            except TimeoutError as error:
                raise MuxTimeout("the master does not answer in time") from error
            except OSError as error:
                raise MuxError(f"the master does not answer: {error.strerror or error}") from error
            if not received:
                raise MuxError("the master has ended")
            view = view[received:]
        return bytes(data)


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _text(data: bytes) -> str:
    return data[4 : 4 + int.from_bytes(data[:4], "big")].decode("utf-8", "replace")
