"""paramiko's handling of packets and channel data, with bounds on what the other side may send.

Every length and count in an SSH message is the peer's word. paramiko believes it: a packet could have 4 GiB, a
greeting no end, and a count could keep a thread busy for hours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import paramiko
from paramiko.packet import Packetizer

WINDOW = 2 * 1024 * 1024  # bytes; more lets bulk data stand in front of everything else
_GREETING_MOST = 64 * 1024  # bytes until the server's version must have come
_PACKET_MOST = 256 * 1024  # bytes; OpenSSH takes no larger packet either
_PROMPTS_MOST = 10  # questions in one message
_TEXT_MOST = 4096  # bytes of one text for people
_EXTENSIONS_MOST = 64


class BoundedPacketizer(Packetizer):
    """Leaves new key exchanges to the server: one started here can deadlock paramiko (its issue 822)."""

    REKEY_BYTES = 2**37  # OpenSSH servers start at 2**36 bytes (AES) and 2**31 packets
    REKEY_PACKETS = 2**31 + 2**20
    _greeted = 0

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """As paramiko's, up to the largest packet that we take."""
        if n > _PACKET_MOST:
            raise paramiko.SSHException(f"it sends a packet of {n} bytes; at most {_PACKET_MOST} are taken")
        return bytes(super().read_all(n, check_rekey))

    def _read_timeout(self, timeout: float) -> bytes:
        """As paramiko's, which uses it for the greeting alone; its lines may have any length there."""
        data = bytes(super()._read_timeout(timeout))  # type: ignore[misc]
        self._greeted += len(data)
        if self._greeted > _GREETING_MOST:
            raise paramiko.SSHException(": it greets without end")
        return data

    def start_handshake(self, timeout: float) -> None:
        """No timer thread, it would outlive a failed attempt: `start_client` is given a timeout instead."""


class Questions(NamedTuple):
    """A keyboard-interactive request: `prompts` are (text, whether what is typed may be shown)."""

    title: str
    instructions: str
    prompts: list[tuple[str, bool]]


def read_questions(m: paramiko.Message) -> Questions:
    """SSHException if there are too many; text that is not UTF-8 is read as far as it goes."""
    title, instructions, _language = read_text(m), read_text(m), m.get_string()
    count = m.get_int()
    if count > _PROMPTS_MOST:
        raise paramiko.SSHException(f"it asks more than {_PROMPTS_MOST} questions at once")
    return Questions(title, instructions, [(read_text(m), m.get_boolean()) for _ in range(count)])


def read_text(m: paramiko.Message) -> str:
    """A string of the message, cut where nobody would read it to its end."""
    return m.get_string()[:_TEXT_MOST].decode("utf-8", "replace")


def check_extensions(m: paramiko.Message) -> None:
    """SSHException if a server names too many extensions."""
    if m.get_int() > _EXTENSIONS_MOST:
        raise paramiko.SSHException(f"it names more than {_EXTENSIONS_MOST} extensions")
    m.rewind()


def take_data(channel: Any, m: paramiko.Message) -> None:
    """Channel data, within the window."""
    channel._feed(m)
    _check_window(channel)


def take_extended_data(channel: Any, m: paramiko.Message) -> None:
    """A command's stderr, within the window."""
    channel._feed_extended(m)
    _check_window(channel)


def _check_window(channel: Any) -> None:
    if len(channel.in_buffer) + len(channel.in_stderr_buffer) > 2 * WINDOW:
        raise paramiko.SSHException("it sends more than its window allows")
