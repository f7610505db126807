"""Stream output as text: what a stream message contains, and smaller messages with the same text.

A kernel may print megabytes in one message; pacing, merging and dropping output need smaller ones.
"""

from __future__ import annotations

import json
from typing import Any, List, NamedTuple, Optional

from ..messages import Channel, Message, MessageError

PIECE = 64 * 1024
"""Characters of text in one message that we create."""


class StreamText(NamedTuple):
    """A stream message's content. `name` is stdout or stderr."""

    name: str
    text: str


def read_stream(message: Message, msg_type: str) -> Optional[StreamText]:
    """Return the content of a stream message; None for any other message, and for a malformed one."""
    if msg_type != "stream" or message.channel is not Channel.IOPUB or len(message.parts) != 4:
        return None
    try:
        content = message.content()
    except MessageError:
        return None
    name, text = content.get("name"), content.get("text")
    if not isinstance(name, str) or not isinstance(text, str):
        return None
    return StreamText(name, text)


def with_stream(message: Message, number: int, stream: StreamText) -> Message:
    """Return the message with this content.

    Every `number` except 0 makes a msg_id of its own, because receivers may ignore a message that comes twice.
    """
    header = message.parts[0]
    if number:
        header = dump(dict(message.header(), msg_id=f"{message.header().get('msg_id')}.{number}"))
    return message.replace(parts=(header, *message.parts[1:3], dump(stream._asdict())))


def split(message: Message, msg_type: str) -> List[Message]:
    """Return messages of at most PIECE characters with the text of a long stream message; else the message itself."""
    if len(message.parts[-1]) <= PIECE:
        return [message]
    whole = read_stream(message, msg_type)
    if whole is None:
        return [message]
    pieces = [whole.text[at : at + PIECE] for at in range(0, len(whole.text), PIECE)]
    return [with_stream(message, number, StreamText(whole.name, text)) for number, text in enumerate(pieces)]


def dump(value: Any) -> bytes:
    """Return JSON as kernels write it: UTF-8, with escapes only for what UTF-8 cannot represent."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()
