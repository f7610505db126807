"""paramiko's Transport, tuned and bounded, over a socket or a channel of the previous hop.

Every length and count in an SSH message is chosen by the server, and paramiko does not check them: a packet could have
4 GiB, a version string no end, and a count could keep a thread busy for hours. This module limits them. It knows no
hop, no user and no known_hosts file.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Any, NamedTuple

import paramiko
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_EXT_INFO,
    MSG_USERAUTH_INFO_REQUEST,
    cMSG_USERAUTH_INFO_RESPONSE,
)
from paramiko.packet import Packetizer

from ..sanitize import one_line
from .algorithms import CURVE25519, CURVE25519_OLD_NAME, Algorithms

# Errors are raised and reported; without a handler, logging would also print paramiko's messages to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

WINDOW = (
    16 * 1024 * 1024
)  # bytes; what is on its way is bounded by the wire's own window, which follows the path
_MAX_GREETING = 64 * 1024  # bytes before the end of the server's version string
_MAX_PACKET = 256 * 1024  # bytes; OpenSSH accepts no larger packet either
_MAX_PROMPTS = 10  # questions in one message
_MAX_TEXT = 4096  # bytes of one text for people
_MAX_EXTENSIONS = 64


# --- limits on what a server may send


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


# --- the transport


class Transport(paramiko.Transport):
    """Keeps the server's messages for errors: `channel_error` of the last refused channel, `server_algorithms` of the
    key exchange, `disconnect_reason` if the server closed the connection. Their length is bounded."""

    _kex_info = {  # noqa: RUF012
        **paramiko.Transport._kex_info,  # type: ignore[attr-defined]
        CURVE25519: paramiko.Transport._kex_info.get(CURVE25519_OLD_NAME),  # type: ignore[attr-defined]
    }

    def __init__(self, sock: socket.socket | JumpSocket, algorithms: Algorithms, timeout: float) -> None:
        super().__init__(sock, default_window_size=WINDOW, packetizer_class=BoundedPacketizer)  # type: ignore[arg-type]
        self.channel_error = self.disconnect_reason = ""
        self._asker_error: Exception | None = None
        self.server_algorithms: dict[str, list[str]] = {}
        self.banner_timeout = timeout
        options = self.get_security_options()
        options.key_types = algorithms.host_keys
        options.ciphers = algorithms.ciphers
        options.digests = algorithms.macs
        options.kex = algorithms.key_exchanges
        self.algorithms = algorithms
        handlers: dict[int, Any] = self._handler_table  # type: ignore[attr-defined]
        handlers[MSG_EXT_INFO] = self._parse_few_extensions
        handlers[MSG_USERAUTH_INFO_REQUEST] = self._parse_questions

    @property
    def last_banner(self) -> str:
        """The last banner of the server, also after it has disconnected: a welcome, or why it refuses everybody."""
        banner = getattr(self.auth_handler, "banner", None) or b""
        return one_line(bytes(banner[-2000:]).decode("utf-8", "replace")[-500:], 500)

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """The host keys to offer. paramiko would offer certificates too, and cannot verify them."""
        return self.algorithms.host_keys

    def sign_in_with(self, user: str, key: paramiko.PKey) -> list[str]:
        """Offer this key, or its certificate. Return the methods that the server wants next, if any."""
        certificate = getattr(key, "public_blob", None)
        self._preferred_pubkeys = self.algorithms.signatures(
            certificate.key_type if certificate else key.get_name()
        )
        return self.auth_publickey(user, key)

    def forget_secrets(self) -> None:
        """Drop the secrets of signing in; paramiko would keep them as long as the connection."""
        handler = self.auth_handler
        if handler is not None:
            handler.password = handler.private_key = handler.interactive_handler = None
        self._asker_error = None
        self.get_exception()  # its traceback leads to frames that know the secret

    def mismatches(self) -> list[str]:
        """Return both sides' algorithms where none is common, e.g. "cipher: it has a, b; we have c, d"."""
        options = self.get_security_options()
        ours = {
            "key exchange": options.kex,
            "host key": options.key_types,
            "cipher": options.ciphers,
            "MAC": options.digests,
        }
        return [
            f"{what}: it has {one_line(', '.join(theirs), 500)}; we have {', '.join(ours[what])}"
            for what, theirs in self.server_algorithms.items()
            if not set(theirs) & set(ours[what])
        ]

    # These methods read a message before paramiko does. Should paramiko rename them, only the reasons are lost.

    def _parse_kex_init(self, m: paramiko.Message) -> None:
        m.get_bytes(16)
        for what in ("key exchange", "host key", "", "cipher", "", "MAC"):
            offered = m.get_list()
            if what:
                self.server_algorithms[what] = offered
        m.rewind()
        super()._parse_kex_init(m)  # type: ignore[misc]

    def _parse_channel_open_failure(self, m: paramiko.Message) -> None:
        m.get_int(), m.get_int()
        self.channel_error = one_line(read_text(m))
        m.rewind()
        super()._parse_channel_open_failure(m)  # type: ignore[misc]

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        m.get_int()
        self.disconnect_reason = one_line(read_text(m)) or "no reason given"
        m.rewind()
        super()._parse_disconnect(m)  # type: ignore[misc]

    def _parse_few_extensions(self, m: paramiko.Message) -> None:
        check_extensions(m)
        self._parse_ext_info(m)  # type: ignore[attr-defined]

    def _parse_questions(self, m: paramiko.Message) -> None:
        handler = getattr(self.auth_handler, "interactive_handler", None)
        if handler is None:
            raise paramiko.SSHException("the server sent questions out of order")
        questions = read_questions(m)
        try:
            answers = handler(*questions)
        except Exception as error:
            self._asker_error = error
            raise
        reply = paramiko.Message()
        reply.add_byte(cMSG_USERAUTH_INFO_RESPONSE)
        reply.add_int(len(answers))
        for answer in answers:
            reply.add_string(answer)
        self._send_message(reply)  # type: ignore[attr-defined]

    def get_exception(self) -> Exception | None:
        """Return what ended the connection: the asker's own exception, or one of SSH, whatever paramiko raised."""
        error = super().get_exception()
        expected = paramiko.SSHException, OSError, EOFError
        if error is None or error is self._asker_error or isinstance(error, expected):
            return error
        return paramiko.SSHException(f"the server violated the SSH protocol ({type(error).__name__})")

    _channel_handler_table = {  # noqa: RUF012
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_DATA: receive_data,
        MSG_CHANNEL_EXTENDED_DATA: receive_extended_data,
    }


class JumpSocket:
    """A channel of one hop, used as the socket of the next. It reads a whole window at once: paramiko asks for a few
    bytes at a time, and each read of a channel costs a lock and a copy of all buffered data."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._buffered = memoryview(b"")

    @property
    def _closed(self) -> bool:  # paramiko asks sockets for this name
        return self._channel.closed

    def recv(self, size: int) -> bytes:
        """Return 1 to `size` bytes; b"" at the end. Raises socket.timeout as a socket does."""
        if not self._buffered:
            self._buffered = memoryview(self._channel.recv(WINDOW))
        data, self._buffered = self._buffered[:size], self._buffered[size:]
        return bytes(data)

    def send(self, data: bytes) -> int:
        """Send some bytes; return how many."""
        return self._channel.send(data)

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of `recv` and `send`."""
        self._channel.settimeout(seconds)

    def close(self) -> None:
        """Close the channel. If the previous hop is dead, this must not raise in paramiko's own thread."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()

    def getpeername(self) -> Any:
        """Return the address of the previous hop."""
        return self._channel.getpeername()
