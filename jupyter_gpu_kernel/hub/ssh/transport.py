"""paramiko's Transport, tuned and bounded, over a socket or a channel of the previous hop.

Every length and count in an SSH message is chosen by the server, and paramiko does not check them: a packet could have
4 GiB, a version string no end, and a count could keep a thread busy for hours. This module limits them. It knows no
hop, no user and no known_hosts file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any, NamedTuple

import paramiko
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_WINDOW_ADJUST,
    MSG_EXT_INFO,
    MSG_USERAUTH_INFO_REQUEST,
    cMSG_CHANNEL_DATA,
    cMSG_IGNORE,
    cMSG_USERAUTH_INFO_RESPONSE,
)

from ..sanitize import one_line
from .algorithms import CURVE25519, CURVE25519_OLD_NAME, Algorithms
from .channels import Channels, ChannelSource
from .packets import BoundedPacketizer
from .pushing import Consumer
from .tcp_socket import TcpSocket

# Errors are raised and reported; without a handler, logging would also print paramiko's messages to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

WINDOW = (
    16 * 1024 * 1024
)  # bytes; what is on its way is bounded by the wire's own window, which follows the path
_PACKET_OVERHEAD = 100  # bytes at most that a packet adds to a channel's data
_MAX_PROMPTS = 10  # questions in one message
_MAX_TEXT = 4096  # bytes of one text for people
_MAX_EXTENSIONS = 64


# --- limits on what a server may send


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


def _may_send(channel: Any, size: int) -> bool:
    with channel.lock:
        most = min(channel.out_window_size, channel.out_max_packet_size - 64)
        return bool(size <= most and not channel.closed and not channel.eof_sent)


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
        self._channels: Channels = Channels()
        self.channel_error = self.disconnect_reason = ""
        self.users = 0  # connections that begin with it
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

    def receive_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let data of channels come straight from this event loop, without the transport's thread. Returns at once; the
        change may take a moment."""
        sock = self.sock
        if isinstance(sock, TcpSocket):
            sock.use_loop(loop)
        if isinstance(sock, TcpSocket | JumpSocket):
            packetizer: Any = self.packetizer
            packetizer.push_from(sock, self._deliver)

    def try_send(self, channel: paramiko.Channel, data: bytes) -> bool:
        """Send data of a channel if all of it can be sent now, without waiting for the server, the network or another
        thread; else return False."""
        if not self.begin_sending(channel, len(data)):
            return False
        try:
            self.send_now(channel, data)
        except (OSError, EOFError, paramiko.SSHException):
            return False  # the connection has ended
        finally:
            self.end_sending()
        return True

    def begin_sending(self, channel: Any, size: int) -> bool:
        """Return whether so many bytes of a channel can be sent without waiting. If so, nobody else can send over this
        connection until `end_sending`."""
        packetizer: Any = self.packetizer
        if not packetizer.sending.acquire(blocking=False):
            return False
        clear_to_send: Any = self.clear_to_send
        if self.clear_to_send_lock.acquire(blocking=False):
            sock: Any = self.sock
            if (
                self.is_active()
                and clear_to_send.is_set()
                and _may_send(channel, size)  # from here on, nobody can send that the channel ends
                and sock.begin_sending(size + _PACKET_OVERHEAD)
            ):
                return True
            self.clear_to_send_lock.release()
        packetizer.sending.release()
        return False

    def send_now(self, channel: Any, data: bytes) -> None:
        """Send data of a channel for which `begin_sending` has returned True."""
        with channel.lock:
            channel.out_window_size -= len(data)
        message = paramiko.Message()
        message.add_byte(cMSG_CHANNEL_DATA)
        message.add_int(channel.remote_chanid)
        message.add_string(data)
        self._send_message(message)  # type: ignore[attr-defined]

    def end_sending(self) -> None:
        """Let others send again."""
        sock: Any = self.sock
        sock.end_sending()
        self.clear_to_send_lock.release()
        packetizer: Any = self.packetizer
        packetizer.sending.release()

    def _deliver(self, kind: int, m: paramiko.Message) -> bool:
        """Handle a message that belongs to a channel, and that needs no answer."""
        handler = self._pushed_messages.get(kind)
        channel = self._channels.get(m.get_int()) if handler is not None else None
        # paramiko sets the window when it handles that the channel was opened, and would forget an earlier adjustment.
        early = kind == MSG_CHANNEL_WINDOW_ADJUST and channel is not None and not channel.active
        if handler is None or channel is None or early:
            m.rewind()
            return False
        handler(channel, m)
        return True

    # These methods read a message before paramiko does. Should paramiko rename them, only the reasons are lost.

    def _parse_kex_init(self, m: paramiko.Message) -> None:
        m.get_bytes(16)
        for what in ("key exchange", "host key", "", "cipher", "", "MAC"):
            offered = m.get_list()
            if what:
                self.server_algorithms[what] = offered
        m.rewind()
        super()._parse_kex_init(m)  # type: ignore[misc]

    def _parse_global_request(self, m: paramiko.Message) -> None:
        """Send something as soon as OpenSSH's server has sent its host keys, right after signing in. It sets
        TCP_NODELAY when a session begins, so until this message is acknowledged it holds its next one back: the answer
        to our first channel. The host before delays the acknowledgement by 40 ms, if it has nothing to send."""
        super()._parse_global_request(m)  # type: ignore[misc]
        message = paramiko.Message()
        message.add_byte(cMSG_IGNORE)
        message.add_string(b"")
        self._send_message(message)  # type: ignore[attr-defined]

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
    _pushed_messages = {  # noqa: RUF012
        MSG_CHANNEL_DATA: receive_data,
        MSG_CHANNEL_EXTENDED_DATA: receive_extended_data,
        MSG_CHANNEL_WINDOW_ADJUST: paramiko.Channel._window_adjust,  # type: ignore[attr-defined]
    }


class JumpSocket(ChannelSource):
    """A channel of one hop, used as the socket of the next. It reads a whole window at once: paramiko asks for a few
    bytes at a time, and each read of a channel costs a lock and a copy of all buffered data."""

    def __init__(self, channel: paramiko.Channel) -> None:
        super().__init__(channel)
        self._buffered = memoryview(b"")
        self._credited = 0  # bytes passed on for which `recv` has opened the window
        self._begun = False

    @property
    def _closed(self) -> bool:  # paramiko asks sockets for this name
        return bool(self._channel.closed)

    def recv(self, size: int) -> bytes:
        """Return 1 to `size` bytes; b"" at the end. Raises socket.timeout as a socket does."""
        if not self._buffered:
            self._buffered = memoryview(self._channel.recv(WINDOW))
        data, self._buffered = self._buffered[:size], self._buffered[size:]
        return bytes(data)

    def pass_on(self, consumer: Consumer) -> None:
        """Give this consumer everything; what it has so far came from `recv`."""
        self._credited = consumer.pending + len(self._buffered)
        if self._buffered:
            buffered, self._buffered = bytes(self._buffered), memoryview(b"")
            consumer.feed(buffered)
        super().pass_on(consumer)

    def consumed(self, size: int) -> None:
        """Open the window again, unless that was done before."""
        credited = min(self._credited, size)
        self._credited -= credited
        super().consumed(size - credited)

    def send(self, data: bytes) -> int:
        """Send some bytes; return how many."""
        if self._begun:
            self._channel.transport.send_now(self._channel, data)
            return len(data)
        return int(self._channel.send(data))

    def begin_sending(self, size: int) -> bool:
        """Return whether so many bytes can be sent without waiting. If so, nobody else can until `end_sending`."""
        self._begun = self._channel.transport.begin_sending(self._channel, size)
        return self._begun

    def end_sending(self) -> None:
        """Let others send again."""
        self._begun = False
        self._channel.transport.end_sending()

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
