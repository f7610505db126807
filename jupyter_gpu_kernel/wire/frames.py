"""Frames: how the byte stream between hub and work node is cut.

A stream begins with MAGIC, so that noise printed by shell start-up files before it can be skipped and
shown. After it only frames follow: length, attachment, kind, flags, number (big-endian), then payload.
This file knows neither what the payloads mean nor which side we are.
"""

from __future__ import annotations

import enum
import json
import struct
from typing import Any, Dict, List, NamedTuple, Optional

from .fields import FieldError, load_object

MAGIC = b"\x00\xffJGK\r\n\x00"
CHUNK = 64 * 1024
"""Largest payload of a DATA frame, bytes: what an urgent frame may have to wait for."""
MAX_PAYLOAD = 4 * 1024 * 1024
MAX_NOISE = 256 * 1024
_HEADER = struct.Struct("!IIBBQ")


class FrameError(Exception):
    """The peer's bytes are no frames of this protocol: the stream must be given up."""


class Kind(enum.IntEnum):
    """What a frame is for. HELLO to CLOSE belong to an attachment; the rest to the stream (attachment 0)."""

    HELLO = 1
    DATA = 2
    ACK = 3
    CLOSE = 4
    PING = 5
    PONG = 6
    REQUEST = 7
    REPLY = 8


class Frame(NamedTuple):
    """`number` numbers DATA chunks, acknowledges them, or pairs requests with replies and pings."""

    kind: Kind
    attachment: int = 0
    number: int = 0
    flags: int = 0
    payload: bytes = b""

    def encode(self) -> bytes:
        """The frame's bytes on the stream."""
        header = _HEADER.pack(len(self.payload), self.attachment, self.kind, self.flags, self.number)
        return header + self.payload

    def json(self) -> Dict[str, Any]:
        """The payload as a JSON object; FrameError if it is none."""
        try:
            return load_object(self.payload)
        except FieldError as error:
            raise FrameError(f"{self.kind.name} frame: {error}") from None


def json_frame(kind: Kind, value: Dict[str, Any], attachment: int = 0, number: int = 0) -> Frame:
    """A frame whose payload is a JSON object."""
    return Frame(kind, attachment, number, 0, json.dumps(value, separators=(",", ":")).encode())


def reply_frame(answer: Dict[str, Any], number: int) -> Frame:
    """The answer to a REQUEST of that number; an error in its place where it is larger than a frame."""
    reply = json_frame(Kind.REPLY, answer, number=number)
    if len(reply.payload) <= MAX_PAYLOAD:
        return reply
    return json_frame(
        Kind.REPLY, {"error": {"code": "large", "text": "the answer is too large"}}, number=number
    )


class FrameReader:
    """Bytes in, frames out. With `greeting` everything before MAGIC is noise, kept for error messages."""

    def __init__(self, greeting: bool = True) -> None:
        self.noise = b""
        self.greeted = not greeting
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Frame]:
        """Every frame that `data` completes. Raises FrameError; then nothing more can be read."""
        self._buffer += data
        if not self.greeted and not self._find_magic():
            return []
        frames: List[Frame] = []
        offset = 0
        while True:
            frame = self._parse(offset)
            if frame is None:
                break
            frames.append(frame)
            offset += _HEADER.size + len(frame.payload)
        del self._buffer[:offset]
        return frames

    def _find_magic(self) -> bool:
        at = self._buffer.find(MAGIC)
        if at < 0:
            if len(self._buffer) > MAX_NOISE:
                raise FrameError("the node's shell start-up files print without end")
            self.noise = bytes(self._buffer)
            return False
        self.noise = bytes(self._buffer[:at])
        del self._buffer[: at + len(MAGIC)]
        self.greeted = True
        return True

    def _parse(self, offset: int) -> Optional[Frame]:
        if len(self._buffer) - offset < _HEADER.size:
            return None
        length, attachment, kind, flags, number = _HEADER.unpack_from(self._buffer, offset)
        if length > MAX_PAYLOAD:
            raise FrameError(f"a frame of {length} bytes: more than {MAX_PAYLOAD}")
        start = offset + _HEADER.size
        if len(self._buffer) - start < length:
            return None
        try:
            known = Kind(kind)
        except ValueError:
            raise FrameError(f"a frame of unknown kind {kind}") from None
        return Frame(known, attachment, number, flags, bytes(self._buffer[start : start + length]))
