"""The packets of one SSH connection: bounded, and parsed by whoever brings the bytes.

paramiko's transport reads packets in a thread of its own. Once a source pushes bytes, they are parsed in the thread
that brings them: what belongs to channels goes on from there, and the transport's thread gets the rest.
"""

from __future__ import annotations

import queue
import struct
import threading
from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.common import MSG_KEXINIT
from paramiko.packet import Packetizer

from .pushing import Source

_MAX_GREETING = 64 * 1024  # bytes before the end of the server's version string
_MAX_PACKET = 256 * 1024  # bytes; OpenSSH accepts no larger packet either
_MAX_QUEUED = 100  # packets for the transport's thread
_READ_SIZE = 256 * 1024

Packet = tuple[int, paramiko.Message]


class BoundedPacketizer(Packetizer):
    """Bounds packets, and leaves rekeying to the server: starting it here can deadlock paramiko (its issue 822)."""

    REKEY_BYTES = 2**37  # OpenSSH servers start at 2**36 bytes (AES) and 2**31 packets
    REKEY_PACKETS = 2**31 + 2**20
    _greeted = 0

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        self._sock = sock
        self.sending = threading.RLock()
        """Held by whoever sends."""
        self._received = bytearray()
        self._delimited = False  # whether a packet's length can be read before the packet is decrypted
        self._whole = False  # whether `read_all` takes a packet that was received completely
        self._wanted: tuple[Source, Callable[[int, paramiko.Message], bool]] | None = None
        # From here on for pushed bytes. The lock is held while packets are parsed.
        self._parsing = threading.RLock()
        self._source: Source | None = None
        self._deliver: Callable[[int, paramiko.Message], bool] = lambda kind, message: False
        self._queue: queue.SimpleQueue[Packet | Exception | None] = queue.SimpleQueue()
        self._paused = False  # whether the transport's thread has to go on first
        self._exchanging_keys = False
        self._failed = False

    # --- limits

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """As paramiko's, up to the largest packet that we accept."""
        if n > _MAX_PACKET:
            raise paramiko.SSHException(
                f"the server sent a packet of {n} bytes; at most {_MAX_PACKET} are accepted"
            )
        with memoryview(self._received) as view:
            data = bytes(view[: max(n, 0)])
        del self._received[: len(data)]
        if self._whole or len(data) == n:
            return data
        return data + bytes(super().read_all(n - len(data), check_rekey))

    def _read_timeout(self, timeout: float) -> bytes:
        """As paramiko's, which uses it for the version string only, without a limit."""
        data = bytes(super()._read_timeout(timeout))  # type: ignore[misc]
        self._greeted += len(data)
        if self._greeted > _MAX_GREETING:
            raise paramiko.SSHException(": the server sends text without end instead of its version string")
        return data

    def start_handshake(self, timeout: float) -> None:
        """Start no timer thread, as it would outlive a failed attempt: `start_client` is given a timeout instead."""

    def send_message(self, data: paramiko.Message) -> None:
        """As paramiko's."""
        with self.sending:
            super().send_message(data)

    # --- the transport's thread

    def set_inbound_cipher(self, *args: Any, **more: Any) -> None:
        """As paramiko's. With some ciphers a packet's length is not encrypted, so that packets can be delimited."""
        super().set_inbound_cipher(*args, **more)
        self._delimited = bool(more.get("etm") or more.get("aead"))
        self._exchanging_keys = False
        if self._source is not None and not self._delimited:
            raise paramiko.SSHException("the server has changed to an algorithm without packet lengths")

    def read_message(self) -> Packet:
        """Return the next packet for the transport's thread."""
        if not self._delimited:
            return super().read_message()
        while self._source is None:
            if self._has_packet():
                return self._read_packet()
            if self._wanted is not None:
                self._begin(*self._wanted)
            else:
                self._read_more()
        return self._next_queued()

    def push_from(self, source: Source, deliver: Callable[[int, paramiko.Message], bool]) -> None:
        """Let `source` push from now on, or soon. `deliver(kind, message)` takes a packet, or returns False if it is
        for the transport's thread. Without effect for ciphers that encrypt a packet's length."""
        self._wanted = source, deliver

    def _begin(self, source: Source, deliver: Callable[[int, paramiko.Message], bool]) -> None:
        with self._parsing:
            self._source, self._deliver = source, deliver
            source.pass_on(self)

    def _read_more(self) -> None:
        try:
            data = self._sock.recv(_READ_SIZE)
        except (TimeoutError, BlockingIOError):
            data = None
        except OSError:
            if not self.closed:
                raise
            data = b""
        if data == b"" or self.closed:
            raise EOFError
        self._received += data or b""

    def _next_queued(self) -> Packet:
        while True:
            if self._paused and self._queue.empty():
                packet = self._go_on()
                if packet is not None:
                    return packet
            item = self._queue.get()
            if isinstance(item, Exception):
                raise item
            if item is not None:
                return item

    def _go_on(self) -> Packet | None:
        """Return the next packet of a key exchange; after it, or after a queue that was full, let packets be pushed."""
        with self._parsing:
            if self._failed or not self._queue.empty():
                return None
            if not self._exchanging_keys:
                self._paused = False
                self._parse()
            elif self._has_packet():
                before = len(self._received)
                packet = self._read_packet()
                self._taken(before)
                return packet
        return None

    # --- whoever pushes

    @property
    def pending(self) -> int:
        """The bytes that were received and not parsed yet."""
        return len(self._received)

    def feed(self, data: bytes) -> None:
        """Take bytes, and deliver the packets that they complete."""
        with self._parsing:
            if self._failed:
                return
            self._received += data
            if self._paused and self._exchanging_keys:
                self._queue.put(None)  # the transport's thread looks at them
            else:
                self._parse()

    def end(self) -> None:
        """No more bytes come."""
        self._queue.put(EOFError())

    def _parse(self) -> None:
        before = len(self._received)
        try:
            while not self._paused and self._has_packet():
                kind, message = self._read_packet()
                if self.need_rekey() or not self._deliver(kind, message):
                    self._exchanging_keys = kind == MSG_KEXINIT
                    # Before the packet is queued: the thread that takes it may wait for another one at once.
                    self._paused = self._exchanging_keys or self._queue.qsize() + 1 >= _MAX_QUEUED
                    self._queue.put((kind, message))
        except Exception as error:  # whatever the server has sent: the transport's thread ends with it
            self._failed = self._paused = True
            self._received.clear()
            self._queue.put(error)
        self._taken(before)

    def _taken(self, before: int) -> None:
        taken = before - len(self._received)
        if taken and self._source is not None:
            self._source.consumed(taken)

    # --- packets

    def _has_packet(self) -> bool:
        if len(self._received) < 4:
            return False
        (size,) = struct.unpack_from(">I", self._received)
        if size > _MAX_PACKET:
            raise paramiko.SSHException(
                f"the server sent a packet of {size} bytes; at most {_MAX_PACKET} are accepted"
            )
        return bool(len(self._received) >= 4 + size + self.get_mac_size_in())

    def _read_packet(self) -> Packet:
        self._whole = True
        try:
            return super().read_message()
        finally:
            self._whole = False
