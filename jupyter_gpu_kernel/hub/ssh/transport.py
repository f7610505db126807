"""paramiko's Transport, tuned and bounded, over a socket or a channel of the previous hop.

Of paramiko only the public interface is used. This module knows no hop, no user and no known_hosts file.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import paramiko
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_OPEN_FAILURE,
    MSG_DISCONNECT,
    MSG_GLOBAL_REQUEST,
)

from ..sanitize import one_line
from .config.algorithms import CIPHERS, KEY_EXCHANGES, MACS
from .packets import BoundedPacketizer, read_text

# Errors are raised and reported; without a handler, logging would also print paramiko's messages to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

WINDOW = (
    16 * 1024 * 1024
)  # bytes; what is on its way is bounded by the wire's own window, which follows the path
_PACKET_SIZE = 64 * 1024  # bytes; fewer packets than with paramiko's 32 KiB wake fewer threads
READ_SIZE = 256 * 1024  # bytes of a TCP connection
Answers = Callable[[str, str, list[tuple[str, bool]]], list[str]]


class Transport(paramiko.Transport):
    """Keeps the server's messages for errors: `channel_error` of the last refused channel (paramiko's issue 2089), and
    `disconnect_reason` if the server closed the connection. Their length is bounded."""

    def __init__(self, sock: BufferedSocket, host_keys: Sequence[str]) -> None:
        """`host_keys`: the algorithms to ask the server's key for, the preferred ones first."""
        super().__init__(
            sock,  # type: ignore[arg-type]
            default_window_size=WINDOW,
            default_max_packet_size=_PACKET_SIZE,
            packetizer_class=BoundedPacketizer,
        )
        self.channel_error = self.disconnect_reason = ""
        self._opened = WeakValueDictionary[int, paramiko.Channel]()
        self._asker_error: Exception | None = None
        options = self.get_security_options()
        options.key_types = self._host_keys = tuple(host_keys)
        options.ciphers, options.digests = CIPHERS, MACS
        options.kex = tuple(one for one in KEY_EXCHANGES if one in options.kex)
        packetizer: Any = self.packetizer
        packetizer.observers = {
            MSG_CHANNEL_OPEN_FAILURE: self._note_refused_channel,
            MSG_DISCONNECT: self._note_disconnect,
            MSG_GLOBAL_REQUEST: self._acknowledge,
            MSG_CHANNEL_DATA: self._check_window,
            MSG_CHANNEL_EXTENDED_DATA: self._check_window,
        }

    @property
    def last_banner(self) -> str:
        """The last banner of the server, also after it has disconnected: a welcome, or why it refuses everybody."""
        banner = getattr(self.auth_handler, "banner", None) or b""
        return one_line(bytes(banner[-2000:]).decode("utf-8", "replace")[-500:], 500)

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """Algorithms for the server's host key. paramiko would also accept certificates, and cannot verify them."""
        return self._host_keys

    def auth_interactive(self, username: str, handler: Answers, submethods: str = "") -> list[str]:
        """Answer the server's questions, as paramiko's method does, but raise an exception of `handler` unchanged."""

        def answers(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
            try:
                return handler(title, instructions, prompts)
            except Exception as error:
                self._asker_error = error
                raise

        return super().auth_interactive(username, answers, submethods)

    def open_channel(self, *args: Any, **named: Any) -> paramiko.Channel:
        """Open a channel, as paramiko's method does, and remember it. paramiko opens sessions by this method, too."""
        channel = super().open_channel(*args, **named)
        self._opened[channel.get_id()] = channel
        return channel

    def forget_secrets(self) -> None:
        """Drop the secrets of signing in; paramiko would keep them as long as the connection."""
        handler = self.auth_handler
        if handler is not None:
            handler.password = handler.private_key = handler.interactive_handler = None
        self._asker_error = None
        self.get_exception()  # its traceback leads to frames that know the secret

    def get_exception(self) -> Exception | None:
        """Return what ended the connection: the asker's own exception, or one of SSH, whatever paramiko raised."""
        error = super().get_exception()
        expected = paramiko.SSHException, OSError, EOFError
        if error is None or error is self._asker_error or isinstance(error, expected):
            return error
        return paramiko.SSHException(f"the server violated the SSH protocol ({type(error).__name__})")

    # --- messages of the server, before paramiko handles them

    def _note_refused_channel(self, message: paramiko.Message) -> None:
        message.get_int(), message.get_int()
        self.channel_error = one_line(read_text(message))

    def _note_disconnect(self, message: paramiko.Message) -> None:
        message.get_int()
        self.disconnect_reason = one_line(read_text(message)) or "no reason given"

    def _acknowledge(self, message: paramiko.Message) -> None:
        """Send something as soon as OpenSSH's server has sent its host keys, right after signing in. It sets
        TCP_NODELAY when a session begins, so until this message is acknowledged it holds its next one back: the answer
        to our first channel. The host before delays the acknowledgement by 40 ms, if it has nothing to send."""
        if self.is_authenticated():
            self.send_ignore(1)

    def _check_window(self, message: paramiko.Message) -> None:
        """Raise SSHException if a channel holds much more than its window permits, which paramiko never checks."""
        channel: Any = self._opened.get(message.get_int())
        if channel is not None and len(channel.in_buffer) + len(channel.in_stderr_buffer) > 2 * WINDOW:
            raise paramiko.SSHException("the server sends more data than the window allows")


class BufferedSocket:
    """The socket of one hop: a TCP connection, or a channel of the hop before. It reads much at once: paramiko asks for
    a few bytes at a time, and each read costs system calls, or a lock and a copy of all that the channel holds."""

    def __init__(self, source: socket.socket | paramiko.Channel, size: int = READ_SIZE) -> None:
        """`size`: the bytes of one read; a whole window for a channel, as it moves what a read leaves there."""
        self.source: Any = source
        self._size = size
        self._buffered = memoryview(b"")
        self._closed = False  # paramiko asks sockets for this name

    def recv(self, size: int) -> bytes:
        """Return 1 to `size` bytes; b"" at the end. Raises socket.timeout as a socket does."""
        if not self._buffered:
            self._buffered = memoryview(self.source.recv(self._size))
        data, self._buffered = self._buffered[:size], self._buffered[size:]
        return bytes(data)

    def send(self, data: bytes) -> int:
        """Send some bytes; return how many."""
        return int(self.source.send(data))

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of `recv` and `send`."""
        self.source.settimeout(seconds)

    def close(self) -> None:
        """Close the socket. If the previous hop is dead, this must not raise in paramiko's own thread."""
        self._closed = True
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self.source.close()
