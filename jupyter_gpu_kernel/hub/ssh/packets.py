"""Limits on the packets and channel data that a server may send.

Every length and count in an SSH message is chosen by the server, and paramiko does not check them: a packet could have
4 GiB, a version string no end, and a count could keep a thread busy for hours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import paramiko
from paramiko.packet import Packetizer

WINDOW = 2 * 1024 * 1024  # bytes; with more, bulk data would delay everything else
_MAX_GREETING = 64 * 1024  # bytes before the end of the server's version string
_MAX_PACKET = 256 * 1024  # bytes; OpenSSH accepts no larger packet either
_MAX_PROMPTS = 10  # questions in one message
_MAX_TEXT = 4096  # bytes of one text for people
_MAX_EXTENSIONS = 64


class BoundedPacketizer(Packetizer):
    """Bounds packets, and leaves rekeying to the server: starting it here can deadlock paramiko (its issue 822)."""

    REKEY_BYTES = 2**37  # OpenSSH servers start at 2**36 bytes (AES) and 2**31 packets
    REKEY_PACKETS = 2**31 + 2**20
    _greeted = 0

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """As paramiko's, up to the largest packet that we accept."""
        if n > _MAX_PACKET:
            raise paramiko.SSHException(
                f"the server sent a packet of {n} bytes; at most {_MAX_PACKET} are accepted"
            )
        return bytes(super().read_all(n, check_rekey))

    def _read_timeout(self, timeout: float) -> bytes:
        """As paramiko's, which uses it for the version string only, without a limit."""
        data = bytes(super()._read_timeout(timeout))  # type: ignore[misc]
        self._greeted += len(data)
        if self._greeted > _MAX_GREETING:
            raise paramiko.SSHException(": the server sends text without end instead of its version string")
        return data

    def start_handshake(self, timeout: float) -> None:
        """Start no timer thread, as it would outlive a failed attempt: `start_client` is given a timeout instead."""


class Questions(NamedTuple):
    """A keyboard-interactive request: `prompts` are (text, whether the answer may be shown)."""

    title: str
    instructions: str
    prompts: list[tuple[str, bool]]


def read_questions(m: paramiko.Message) -> Questions:
    """Read a keyboard-interactive request. SSHException if it has too many prompts."""
    title, instructions, _language = read_text(m), read_text(m), m.get_string()
    count = m.get_int()
    if count > _MAX_PROMPTS:
        raise paramiko.SSHException(f"the server asks more than {_MAX_PROMPTS} questions at once")
    return Questions(title, instructions, [(read_text(m), m.get_boolean()) for _ in range(count)])


def read_text(m: paramiko.Message) -> str:
    """Read a string of the message, truncated to a length that people read."""
    return m.get_string()[:_MAX_TEXT].decode("utf-8", "replace")


def check_extensions(m: paramiko.Message) -> None:
    """Raise SSHException if a server announces too many extensions."""
    if m.get_int() > _MAX_EXTENSIONS:
        raise paramiko.SSHException(f"the server announces more than {_MAX_EXTENSIONS} extensions")
    m.rewind()


def receive_data(channel: Any, m: paramiko.Message) -> None:
    """Take channel data, within the window."""
    channel._feed(m)
    _check_window(channel)


def receive_extended_data(channel: Any, m: paramiko.Message) -> None:
    """Take a command's stderr, within the window."""
    channel._feed_extended(m)
    _check_window(channel)


def _check_window(channel: Any) -> None:
    if len(channel.in_buffer) + len(channel.in_stderr_buffer) > 2 * WINDOW:
        raise paramiko.SSHException("the server sends more data than the window allows")
