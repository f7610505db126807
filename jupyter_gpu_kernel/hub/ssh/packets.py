"""The packets of one SSH connection: their sizes are bounded, and what they say is checked before paramiko reads it.

Every length and count in an SSH message is chosen by the server, and paramiko checks none of them: a packet could have
4 GiB (paramiko's issue 2626), a version string no end, and a count could keep a thread busy for hours. All overridden
names are public ones of paramiko.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import paramiko
from paramiko.common import MSG_EXT_INFO, MSG_USERAUTH_INFO_REQUEST
from paramiko.packet import Packetizer

_MAX_GREETING = 64 * 1024  # bytes before the end of the server's version string
_MAX_PACKET = 256 * 1024  # bytes; OpenSSH accepts no larger packet either
_MAX_PROMPTS = 10  # questions in one message
_MAX_TEXT = 4096  # bytes of one text for people
_MAX_EXTENSIONS = 64


class BoundedPacketizer(Packetizer):
    """Bounds packets, and leaves rekeying to the server: starting it here can deadlock paramiko (its issue 822).

    `observers`: functions that are called with a message of a kind before paramiko handles it."""

    REKEY_BYTES = 2**37  # OpenSSH servers start at 2**36 bytes (AES) and 2**31 packets
    REKEY_PACKETS = 2**31 + 2**20

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        self.observers: Mapping[int, Callable[[paramiko.Message], None]] = {}
        self._greeted = 0  # bytes of the lines up to the version string

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Return exactly `n` bytes, as paramiko's method does. Raises SSHException for more than the largest packet."""
        if n > _MAX_PACKET:
            raise paramiko.SSHException(
                f"the server sent a packet of {n} bytes; at most {_MAX_PACKET} are accepted"
            )
        return bytes(super().read_all(n, check_rekey))

    def readline(self, timeout: float) -> str:
        """Return the next line before the end of the version string. paramiko's own method has no limit. `timeout` has
        no effect: `start_client` is given one."""
        line = bytearray()
        while not line.endswith(b"\n"):
            line += self.read_all(1)
            self._greeted += 1
            if self._greeted > _MAX_GREETING:
                raise paramiko.SSHException(
                    ": the server sends text without end instead of its version string"
                )
        return line.decode().removesuffix("\n").removesuffix("\r")

    def start_handshake(self, timeout: float) -> None:
        """Start no timer thread, as it would outlive a failed attempt: `start_client` is given a timeout instead."""

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Return the next message, as paramiko's method does, with counts that are within bounds."""
        kind, message = super().read_message()
        if kind == MSG_USERAUTH_INFO_REQUEST:
            message = _bounded_questions(message)
        elif kind == MSG_EXT_INFO and message.get_int() > _MAX_EXTENSIONS:
            raise paramiko.SSHException(f"the server announces more than {_MAX_EXTENSIONS} extensions")
        elif kind in self.observers:
            self.observers[kind](message)
        message.rewind()
        return kind, message


def _bounded_questions(message: paramiko.Message) -> paramiko.Message:
    """Return a keyboard-interactive request with texts that can be decoded and have a length that people read."""
    bounded = paramiko.Message()
    for _ in ("title", "instructions", "language"):
        bounded.add_string(read_text(message))
    count = message.get_int()
    if count > _MAX_PROMPTS:
        raise paramiko.SSHException(f"the server asks more than {_MAX_PROMPTS} questions at once")
    bounded.add_int(count)
    for _ in range(count):
        bounded.add_string(read_text(message))
        bounded.add_boolean(message.get_boolean())
    return bounded


def read_text(message: paramiko.Message) -> str:
    """Read a string of the message, truncated to a length that people read."""
    return message.get_string()[:_MAX_TEXT].decode("utf-8", "replace")
