"""Frames: the units of the byte stream between the hub and a work node.

A stream begins with MAGIC, so that what shell start-up files print before it can be skipped and shown. Only frames
follow: length, attachment, kind, flags, number (big-endian), then the payload. This module knows neither what the
payloads mean nor which end of the stream it runs on.
"""

from __future__ import annotations

import enum
import json
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Union

from ..fields import FieldError, load_object

MAGIC = b"\x00\xffJGK\r\n\x00"
CHUNK = 64 * 1024
"""The largest payload of a DATA frame in bytes. An urgent frame waits for one of them at most."""
MAX_PAYLOAD = 4 * 1024 * 1024
MAX_NOISE = 256 * 1024
_HEADER = struct.Struct("!IIBBQ")


class FrameError(Exception):
    """The bytes are not frames of this protocol: the stream must be closed."""


class Kind(enum.IntEnum):
    """The kind of a frame. HELLO to CLOSE belong to an attachment; the others to the stream (attachment 0)."""

    HELLO = 1
    DATA = 2
    ACK = 3
    CLOSE = 4
    PING = 5
    PONG = 6
    REQUEST = 7
    REPLY = 8


_KINDS = {int(kind): kind for kind in Kind}


class Frame(NamedTuple):
    """A frame. `number` is that of a DATA chunk or of an acknowledged one, or pairs a reply with its request."""

    kind: Kind
    attachment: int = 0
    number: int = 0
    flags: int = 0
    payload: bytes = b""

    def encode(self) -> bytes:
        """Return the frame's bytes on the stream."""
        header = _HEADER.pack(len(self.payload), self.attachment, self.kind, self.flags, self.number)
        return header + self.payload

    def json(self) -> Dict[str, Any]:
        """Return the payload as a JSON object; raise FrameError if it is none."""
        try:
            return load_object(self.payload)
        except FieldError as error:
            raise FrameError(f"{self.kind.name} frame: {error}") from None


def json_frame(kind: Kind, value: Dict[str, Any], attachment: int = 0, number: int = 0) -> Frame:
    """Return a frame whose payload is a JSON object."""
    return Frame(kind, attachment, number, 0, json.dumps(value, separators=(",", ":")).encode())


def reply_frame(answer: Dict[str, Any], number: int) -> Frame:
    """Return the REPLY to the REQUEST of this number, with an error in its place if it is too large for a frame."""
    reply = json_frame(Kind.REPLY, answer, number=number)
    if len(reply.payload) <= MAX_PAYLOAD:
        return reply
    return json_frame(
        Kind.REPLY, {"error": {"code": "large", "text": "the answer is too large"}}, number=number
    )


class FrameReader:
    """Bytes in, frames out. With `greeting`, `noise` keeps the bytes before MAGIC for error messages."""

    def __init__(self, greeting: bool = True) -> None:
        self.greeted = not greeting
        self._buffer = bytearray()
        self._noise = b""

    @property
    def noise(self) -> bytes:
        """The bytes before MAGIC; all so far, if it has not come."""
        return self._noise if self.greeted else bytes(self._buffer)

    def feed(self, data: Union[bytes, memoryview]) -> List[Frame]:
        """Return every frame that `data` completes. After a FrameError nothing more can be read."""
        before = len(self._buffer)
        self._buffer += data
        if not self.greeted and not self._find_magic(max(0, before - len(MAGIC))):
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

    def _find_magic(self, start: int) -> bool:
        at = self._buffer.find(MAGIC, start)
        if at < 0:
            if len(self._buffer) > MAX_NOISE:
                raise FrameError("the node's shell start-up files print without end")
            return False
        self._noise = bytes(self._buffer[:at])
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
        known = _KINDS.get(kind)
        if known is None:
            raise FrameError(f"a frame of unknown kind {kind}")
        with memoryview(self._buffer) as view:  # a slice of the buffer itself would be one more copy
            return Frame(known, attachment, number, flags, bytes(view[start : start + length]))
