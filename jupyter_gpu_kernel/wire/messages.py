"""Messages: one Jupyter message, or one word between hub and keeper, without signature and identity.

The edge verifies and signs with the front end's key, the keeper with the kernel's; in between a message is
(channel, client number, header, parent, metadata, content, buffers), its JSON parts untouched bytes.
"""

from __future__ import annotations

import enum
import json
import struct
from typing import Any, Dict, List, NamedTuple, Tuple

from .fields import FieldError, load_object

_HEAD = struct.Struct("!BIH")


MOST_CLIENTS = (1 << 32) - 1
MOST_PARTS = (1 << 16) - 1


class MessageError(Exception):
    """Bytes that are no message."""


class Channel(enum.IntEnum):
    """Jupyter's channels that cross the wire (heartbeats are answered locally), and our own."""

    SHELL = 1
    IOPUB = 2
    STDIN = 3
    CONTROL = 4
    KEEPER = 5


class Lane(enum.IntEnum):
    """What may overtake what: a lower lane goes first. Within a lane order is kept."""

    URGENT = 0
    PROMPT = 1
    ORDERED = 2


class Message(NamedTuple):
    """`parts`: header, parent, metadata, content, *buffers; for KEEPER one JSON object."""

    channel: Channel
    client: int
    parts: Tuple[bytes, ...]

    @property
    def size(self) -> int:
        """How many bytes `encode` makes of it."""
        return _HEAD.size + 4 * len(self.parts) + sum(map(len, self.parts))

    def encode(self) -> bytes:
        """The message's bytes: channel, client, count, lengths, parts."""
        lengths = struct.pack("!%dI" % len(self.parts), *map(len, self.parts))
        head = _HEAD.pack(self.channel, self.client, len(self.parts))
        return b"".join((head, lengths, *self.parts))

    @classmethod
    def decode(cls, data: bytes) -> Message:
        """The message in `data`; MessageError if its lengths do not fit."""
        try:
            channel, client, count = _HEAD.unpack_from(data)
            lengths = struct.unpack_from("!%dI" % count, data, _HEAD.size)
            kind = Channel(channel)
        except (struct.error, ValueError) as error:
            raise MessageError(str(error)) from None
        offset = _HEAD.size + 4 * count
        if offset + sum(lengths) != len(data):
            raise MessageError("a message whose lengths do not add up")
        parts: List[bytes] = []
        for length in lengths:
            parts.append(data[offset : offset + length])
            offset += length
        return cls(kind, client, tuple(parts))

    def header(self) -> Dict[str, Any]:
        """The message's Jupyter header."""
        return self._json(0)

    def parent(self) -> Dict[str, Any]:
        """The Jupyter header of the message that this one answers ({} if none)."""
        return self._json(1)

    def metadata(self) -> Dict[str, Any]:
        """What the front end adds, such as the cell's id."""
        return self._json(2)

    def content(self) -> Dict[str, Any]:
        """The message's content; for KEEPER the word itself."""
        return self._json(0 if self.channel is Channel.KEEPER else 3)

    def _json(self, place: int) -> Dict[str, Any]:
        if len(self.parts) <= place:
            raise MessageError(f"a message of {len(self.parts)} parts")
        return _json(self.parts[place])


def word(**value: Any) -> Message:
    """A word between hub and keeper, such as word(do="interrupt") or word(event="state", …)."""
    return Message(Channel.KEEPER, 0, (json.dumps(value).encode(),))


def lane_of(message: Message, msg_type: str) -> Lane:
    """Control and stdin first; small answers before bulk; a reply to a cell stays behind its output."""
    if message.channel in (Channel.CONTROL, Channel.STDIN):
        return Lane.URGENT
    if message.channel is Channel.SHELL and msg_type.endswith("_reply") and msg_type != "execute_reply":
        return Lane.PROMPT
    return Lane.ORDERED


def _json(part: bytes) -> Dict[str, Any]:
    try:
        return load_object(part, "surrogateescape")
    except FieldError as error:
        raise MessageError(f"a part of a message: {error}") from None
