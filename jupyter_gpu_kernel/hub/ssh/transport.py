"""One SSH connection over a socket or a channel of the hop before: paramiko's Transport, tuned.

Knows no hop, no user, no host key file: it makes the encrypted connection, and says in plain words what the
two sides could not agree on.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Any

import paramiko
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_EXT_INFO,
    MSG_USERAUTH_INFO_REQUEST,
    cMSG_USERAUTH_INFO_RESPONSE,
)

from ..inert import one_line
from . import packets
from .algorithms import CURVE25519, CURVE25519_OLD_NAME, Algorithms
from .packets import WINDOW

# Errors are raised and told; without a handler, logging would print paramiko's own account on stderr too.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Transport(paramiko.Transport):
    """Keeps the server's reasons: `refusal` of the last channel asked for, `offers` in the key exchange,
    `farewell` if it ended the connection itself. What a server sends is bounded before it is kept."""

    _kex_info = {  # noqa: RUF012
        **paramiko.Transport._kex_info,  # type: ignore[attr-defined]
        CURVE25519: paramiko.Transport._kex_info.get(CURVE25519_OLD_NAME),  # type: ignore[attr-defined]
    }

    def __init__(self, sock: socket.socket | JumpSocket, algorithms: Algorithms, timeout: float) -> None:
        super().__init__(sock, default_window_size=WINDOW, packetizer_class=packets.BoundedPacketizer)  # type: ignore[arg-type]
        self.refusal = self.farewell = ""
        self._owners_error: Exception | None = None
        self.offers: dict[str, list[str]] = {}
        self.banner_timeout = timeout
        options = self.get_security_options()
        options.key_types = algorithms.host_keys
        options.ciphers = algorithms.ciphers
        options.digests = algorithms.macs
        options.kex = algorithms.key_exchanges
        self.algorithms = algorithms
        self._preferred_pubkeys = algorithms.user_keys
        handlers: dict[int, Any] = self._handler_table  # type: ignore[attr-defined]
        handlers[MSG_EXT_INFO] = self._parse_few_extensions
        handlers[MSG_USERAUTH_INFO_REQUEST] = self._parse_questions

    @property
    def last_words(self) -> str:
        """What the server told people last, also if it has hung up since: a greeting, or why it lets nobody in."""
        said = getattr(self.auth_handler, "banner", None) or b""
        return one_line(bytes(said[-2000:]).decode("utf-8", "replace")[-500:], 500)

    def forget_secrets(self) -> None:
        """Drop what was used to sign in; paramiko would keep it as long as the connection."""
        handler = self.auth_handler
        if handler is not None:
            handler.password = handler.private_key = handler.interactive_handler = None
        self._owners_error = None
        self.get_exception()  # its traceback leads to frames that know the secret

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
            f"{what}: it has {one_line(', '.join(theirs), 500)}; we have {', '.join(ours[what])}"
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
        self.refusal = one_line(packets.read_text(m))
        m.rewind()
        super()._parse_channel_open_failure(m)  # type: ignore[misc]

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        m.get_int()
        self.farewell = one_line(packets.read_text(m)) or "without a word"
        m.rewind()
        super()._parse_disconnect(m)  # type: ignore[misc]

    def _parse_few_extensions(self, m: paramiko.Message) -> None:
        packets.check_extensions(m)
        self._parse_ext_info(m)  # type: ignore[attr-defined]

    def _parse_questions(self, m: paramiko.Message) -> None:
        handler = getattr(self.auth_handler, "interactive_handler", None)
        if handler is None:
            raise paramiko.SSHException("it asks questions at the wrong time")
        questions = packets.read_questions(m)
        try:
            answers = handler(*questions)
        except Exception as error:
            self._owners_error = error
            raise
        reply = paramiko.Message()
        reply.add_byte(cMSG_USERAUTH_INFO_RESPONSE)
        reply.add_int(len(answers))
        for answer in answers:
            reply.add_string(answer)
        self._send_message(reply)  # type: ignore[attr-defined]

    def get_exception(self) -> Exception | None:
        """What ended the connection: the owner's own exception, or one of SSH, whatever paramiko stumbled over."""
        error = super().get_exception()
        expected = paramiko.SSHException, OSError, EOFError
        if error is None or error is self._owners_error or isinstance(error, expected):
            return error
        return paramiko.SSHException(f"it sends what is not SSH ({type(error).__name__})")

    _channel_handler_table = {  # noqa: RUF012
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_DATA: packets.take_data,
        MSG_CHANNEL_EXTENDED_DATA: packets.take_extended_data,
    }


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
