"""What the channels of an SSH connection receive: read by threads, or pushed to a consumer."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import paramiko
from paramiko.buffered_pipe import BufferedPipe
from paramiko.common import cMSG_CHANNEL_WINDOW_ADJUST
from paramiko.transport import ChannelMap

from .pushing import Consumer


class ChannelBuffer(BufferedPipe):  # type: ignore[type-arg]
    """What a channel has received, until somebody reads it, or a consumer takes it."""

    def __init__(self) -> None:
        super().__init__()
        self._consumer: Consumer | None = None

    def __len__(self) -> int:
        return super().__len__() if self._consumer is None else self._consumer.pending

    def pass_on(self, consumer: Consumer) -> None:
        """Give this consumer what is here, and all that comes."""
        while True:
            with self._lock:  # type: ignore[attr-defined]
                data = self._buffer_tobytes()  # type: ignore[attr-defined]
                del self._buffer[:]  # type: ignore[attr-defined]
                if not data:
                    self._consumer = consumer
                    closed = self._closed  # type: ignore[attr-defined]
                    break
            consumer.feed(data)  # without the lock, as whoever closes the channel needs it
        if closed:
            consumer.end()

    def feed(self, data: bytes) -> None:
        """Take data of the channel."""
        if self._consumer is None:
            with self._lock:  # type: ignore[attr-defined]
                if self._consumer is None:
                    self._buffer_frombytes(data)  # type: ignore[attr-defined]
                    self._cv.notify_all()  # type: ignore[attr-defined]
                    return
        if data:  # a server may send nothing, which is not the end
            self._consumer.feed(data)

    def close(self) -> None:
        """No more data comes."""
        super().close()
        if self._consumer is not None:
            self._consumer.end()


class Channels(ChannelMap):
    """A transport's channels. Each has its buffer before the server knows of it, and so before data can come."""

    def put(self, chanid: int, chan: paramiko.Channel) -> None:
        """Add a new channel."""
        chan.in_buffer = ChannelBuffer()
        super().put(chanid, chan)


class ChannelSource:
    """A channel as a source. Its window is opened again as its data is consumed."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel: Any = channel

    def pass_on(self, consumer: Consumer) -> None:
        """Give this consumer everything."""
        self._channel.in_buffer.pass_on(consumer)

    def consumed(self, size: int) -> None:
        """Open the window again; a message for it is due once for each tenth of the window."""
        opened = self._channel._check_add_window(size)
        if opened:
            message = paramiko.Message()
            message.add_byte(cMSG_CHANNEL_WINDOW_ADJUST)
            message.add_int(self._channel.remote_chanid)
            message.add_int(opened)
            # Sending may block. It must not wait for other data either: the server might wait for this message.
            threading.Thread(target=self._send, args=(message,), name="ssh window", daemon=True).start()

    def _send(self, message: paramiko.Message) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the connection has ended
            self._channel.transport._send_user_message(message)
