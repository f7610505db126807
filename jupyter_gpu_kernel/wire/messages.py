"""Messages: Jupyter messages without signature and identity, and messages between hub and keeper.

The edge verifies and signs with the front end's key, the keeper with the kernel's. Between them a message is
(channel, client number, header, parent, metadata, content, buffers). Its JSON parts are passed on as bytes.
"""

from __future__ import annotations

import enum
import json
import struct
from functools import lru_cache
from operator import attrgetter
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union

from .fields import FieldError, load_object

_HEAD = struct.Struct("!BIH")
Data = Union[bytes, bytearray]
"""An encoded message as it was received: it is not copied to become immutable."""
MAX_CLIENTS = (1 << 32) - 1
MAX_PARTS = (1 << 16) - 1
_load_parent = lru_cache(maxsize=32)(load_object)
_MAX_KEPT = 4096
"""All messages about one request have the same parent, which is parsed once if it has no more bytes than this."""
T = TypeVar("T")


class MessageError(Exception):
    """The bytes are not a message."""


class Channel(enum.IntEnum):
    """Jupyter's channels that cross the wire, and our own. Heartbeats are answered locally."""

    SHELL = 1
    IOPUB = 2
    STDIN = 3
    CONTROL = 4
    KEEPER = 5


_CHANNELS = {int(channel): channel for channel in Channel}


class Lane(enum.IntEnum):
    """Which messages may overtake others: a lower lane goes first, and within a lane the order is kept."""

    URGENT = 0
    PROMPT = 1
    ORDERED = 2


class Message:
    """A message; `parts` are header, parent, metadata, content, *buffers, or for KEEPER one JSON object.

    A message is immutable. A part is parsed when it is first asked for, and the result is kept; nobody may change it.
    A parsed part takes several times the memory of its bytes, so queues store `unparsed()` copies.
    """

    __slots__ = ("_msg_type", "_parent_key", "_parsed", "channel", "client", "parts")

    def __init__(self, channel: Channel, client: int, parts: Tuple[bytes, ...]) -> None:
        self.channel = channel
        self.client = client
        self.parts = parts
        self._parsed: Dict[int, Dict[str, Any]] = {}
        self._msg_type: Optional[str] = None
        self._parent_key: Optional[str] = None

    def __repr__(self) -> str:
        return f"Message({self.channel!r}, {self.client}, {self.parts!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self.channel, self.client, self.parts) == (other.channel, other.client, other.parts)

    def __reduce__(self) -> Tuple[Any, ...]:
        return _restored, (int(self.channel), self.client, self.parts)

    def __hash__(self) -> int:
        return hash((self.channel, self.client, self.parts))

    def replace(self, *, client: Optional[int] = None, parts: Optional[Tuple[bytes, ...]] = None) -> Message:
        """Return a copy with another client or other parts. If the parts are the same, they are not parsed again."""
        copy = Message(self.channel, self.client if client is None else client, parts or self.parts)
        if copy.parts is self.parts:
            copy._parsed = self._parsed
        return copy

    def unparsed(self) -> Message:
        """Return a copy without the parsed parts, for a queue."""
        return Message(self.channel, self.client, self.parts)

    @property
    def size(self) -> int:
        """The number of bytes that `encode` returns."""
        return _HEAD.size + 4 * len(self.parts) + sum(map(len, self.parts))

    def encode(self) -> bytes:
        """Return the message's bytes: channel, client, count, lengths, parts."""
        lengths = struct.pack("!%dI" % len(self.parts), *map(len, self.parts))
        head = _HEAD.pack(self.channel, self.client, len(self.parts))
        return b"".join((head, lengths, *self.parts))

    @classmethod
    def decode(cls, data: Data) -> Message:
        """Return the message in `data`; raise MessageError if its lengths do not fit."""
        try:
            channel, client, count = _HEAD.unpack_from(data)
            lengths = struct.unpack_from("!%dI" % count, data, _HEAD.size)
        except struct.error as error:
            raise MessageError(str(error)) from None
        kind = _CHANNELS.get(channel)
        if kind is None:
            raise MessageError(f"a message of the unknown channel {channel}")
        offset = _HEAD.size + 4 * count
        if offset + sum(lengths) != len(data):
            raise MessageError("the lengths of a message's parts do not add up")
        parts: List[bytes] = []
        with memoryview(data) as view:
            for length in lengths:
                parts.append(bytes(view[offset : offset + length]))
                offset += length
        return cls(kind, client, tuple(parts))

    def header(self) -> Dict[str, Any]:
        """Return the message's Jupyter header."""
        return self._parsed.get(0) or self._json(0)

    def parent(self) -> Dict[str, Any]:
        """Return the Jupyter header of the request that this message answers, or {}."""
        return self._parsed.get(1) or self._json(1)

    def metadata(self) -> Dict[str, Any]:
        """Return what the front end adds, such as the cell's id."""
        return self._json(2)

    def content(self) -> Dict[str, Any]:
        """Return the message's content; for KEEPER the whole JSON object."""
        return self._json(0 if self.channel is Channel.KEEPER else 3)

    @property
    def msg_type(self) -> str:
        """The type in the header."""
        if self._msg_type is None:
            self._msg_type = str(self.header().get("msg_type") or "")
        return self._msg_type

    @property
    def msg_id(self) -> str:
        """The id in the header."""
        return str(self.header().get("msg_id") or "")

    @property
    def parent_id(self) -> str:
        """The msg_id of the request that this message answers; "" if there is none."""
        return str(self.parent().get("msg_id") or "")

    @property
    def key(self) -> str:
        """What tells a request from all others of its kernel; "" if it has no msg_id.

        The msg_id alone does not: a KernelManager of jupyter_client, which sends on the control channel, and its
        client have one session, and each counts its own messages.
        """
        return _key(self.header())

    @property
    def parent_key(self) -> str:
        """The key of the request that this message is about; "" if there is none."""
        if self._parent_key is None:
            self._parent_key = _key(self.parent())
        return self._parent_key

    def _json(self, place: int) -> Dict[str, Any]:
        parsed = self._parsed.get(place)
        if parsed is None:
            if len(self.parts) <= place:
                raise MessageError(f"a message of {len(self.parts)} parts")
            part = self.parts[place]
            load = _load_parent if place == 1 and len(part) <= _MAX_KEPT else load_object
            try:
                parsed = self._parsed[place] = load(part, "surrogateescape")
            except FieldError as error:
                raise MessageError(f"a part of a message: {error}") from None
        return parsed


def _restored(channel: int, client: int, parts: Tuple[bytes, ...]) -> Message:
    """Return a message that was pickled: a Channel takes much longer to be pickled than its number."""
    return Message(_CHANNELS[channel], client, parts)


def _or_empty(read: Callable[[Message], T], empty: Callable[[], T]) -> Callable[[Message], T]:
    """Return a function that reads messages in this way, and returns `empty()` for a malformed one: such messages are
    passed on all the same."""

    def read_any(message: Message) -> T:
        try:
            return read(message)
        except MessageError:
            return empty()

    return read_any


type_of = _or_empty(attrgetter("msg_type"), str)
id_of = _or_empty(attrgetter("msg_id"), str)
key_of = _or_empty(attrgetter("key"), str)
parent_key_of = _or_empty(attrgetter("parent_key"), str)
content_of: Callable[[Message], Dict[str, Any]] = _or_empty(Message.content, dict)
"""The properties of these names, and the content, of any message; "" and {} for a malformed one."""


def cell_key(msg_id: str) -> str:
    """Return the key of the execute_request with this msg_id."""
    return _key({"msg_id": msg_id, "msg_type": "execute_request"})


def _key(header: Dict[str, Any]) -> str:
    msg_id = header.get("msg_id")
    return f"{msg_id} {header.get('msg_type')}" if msg_id else ""


def keeper_message(**value: Any) -> Message:
    """Return a message between hub and keeper: a command (do="interrupt") or an event (event="state", …)."""
    return Message(Channel.KEEPER, 0, (json.dumps(value).encode(),))


def lane_of(message: Message, msg_type: str) -> Lane:
    """Return the message's lane: control and stdin first, small replies next; a cell's reply stays behind output."""
    if message.channel in (Channel.CONTROL, Channel.STDIN):
        return Lane.URGENT
    if message.channel is Channel.SHELL and msg_type.endswith("_reply") and msg_type != "execute_reply":
        return Lane.PROMPT
    return Lane.ORDERED
