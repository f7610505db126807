"""One SSH connection over a socket or a channel of the hop before: paramiko's Transport, tuned.

Knows no hop, no user, no host key file: it makes the encrypted connection, and says in plain words what the
two sides could not agree on.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Sequence
from typing import Any

import paramiko
from paramiko.packet import Packetizer

WINDOW = 2 * 1024 * 1024  # bytes; more lets bulk data stand in front of everything else
_CIPHERS_FIRST = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")  # twice the speed of the others here

# Errors are raised and told; without a handler, logging would print paramiko's own account on stderr too.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _Packetizer(Packetizer):
    """Leaves new key exchanges to the server: one started here can deadlock paramiko (its issue 822)."""

    REKEY_BYTES = 2**37  # OpenSSH servers start at 2**36 bytes (AES) and 2**31 packets
    REKEY_PACKETS = 2**31 + 2**20

    def start_handshake(self, timeout: float) -> None:
        """No timer thread, it would outlive a failed attempt: `start_client` is given a timeout instead."""


class Transport(paramiko.Transport):
    """Keeps the server's reasons: `refusal` of the last channel asked for, `offers` in the key exchange,
    `farewell` if it ended the connection itself."""

    def __init__(self, sock: socket.socket | JumpSocket, algorithms: Sequence[str], timeout: float) -> None:
        super().__init__(sock, default_window_size=WINDOW, packetizer_class=_Packetizer)  # type: ignore[arg-type]
        self.refusal = self.farewell = ""
        self.offers: dict[str, list[str]] = {}
        self.banner_timeout = timeout
        options = self.get_security_options()
        options.key_types = tuple(algorithms)
        others = [c for c in options.ciphers if c not in _CIPHERS_FIRST and not c.endswith("-cbc")]
        options.ciphers = (*_CIPHERS_FIRST, *others)

    @property
    def last_words(self) -> str:
        """What the server told people last, also if it has hung up since: a greeting, or why it lets nobody in."""
        said = getattr(self.auth_handler, "banner", None) or b""
        return " ".join(bytes(said).decode("utf-8", "replace").split())[-500:]

    def disagreements(self) -> list[str]:
        """What both sides offered where nothing is common, e.g. "cipher: it has a, b; we have c, d"."""
        options = self.get_security_options()
        ours = {
            "key exchange": options.kex,
            "host key": options.key_types,
            "cipher": options.ciphers,
            "MAC": options.digests,
        }
        return [
            f"{what}: it has {', '.join(theirs)}; we have {', '.join(ours[what])}"
            for what, theirs in self.offers.items()
            if not set(theirs) & set(ours[what])
        ]

    # These read a message before paramiko does; should it rename them, only the reasons are lost.

    def _parse_kex_init(self, m: paramiko.Message) -> None:
        m.get_bytes(16)
        for what in ("key exchange", "host key", "", "cipher", "", "MAC"):
            offered = m.get_list()
            if what:
                self.offers[what] = offered
        m.rewind()
        super()._parse_kex_init(m)  # type: ignore[misc]

    def _parse_channel_open_failure(self, m: paramiko.Message) -> None:
        m.get_int(), m.get_int()
        self.refusal = m.get_text()
        m.rewind()
        super()._parse_channel_open_failure(m)  # type: ignore[misc]

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        m.get_int()
        self.farewell = m.get_text() or "without a word"
        m.rewind()
        super()._parse_disconnect(m)  # type: ignore[misc]


class JumpSocket:
    """A channel of one hop as the socket of the next. Reads a whole window at once: paramiko asks for a few
    bytes, and each read of a channel costs a lock and a copy of all that waits in it."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._waiting = b""

    @property
    def _closed(self) -> bool:  # paramiko asks sockets for this name
        return self._channel.closed

    def recv(self, size: int) -> bytes:
        """1 to `size` bytes; b"" at the end. Raises socket.timeout as a socket does."""
        data = self._waiting or self._channel.recv(WINDOW)
        self._waiting = data[size:]
        return data[:size]

    def send(self, data: bytes) -> int:
        """How many bytes were taken."""
        return self._channel.send(data)

    def settimeout(self, seconds: float | None) -> None:
        """For `recv` and `send`."""
        self._channel.settimeout(seconds)

    def close(self) -> None:
        """Close the channel. If the hop before is dead, paramiko's own thread must not stumble over it."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()

    def getpeername(self) -> Any:
        """The address of the hop before."""
        return self._channel.getpeername()
