"""Stream output as text: what a stream message says, and smaller messages that say the same.

A kernel may print megabytes in one message; whoever paces, merges or drops needs smaller ones. This file
knows neither who waits nor why.
"""

from __future__ import annotations

import json
from typing import Any, List, NamedTuple, Optional

from .messages import Channel, Message, MessageError

PIECE = 64 * 1024
"""Characters of text in one message that we make."""


class Said(NamedTuple):
    """`name`: stdout or stderr."""

    name: str
    text: str


def said(message: Message, msg_type: str) -> Optional[Said]:
    """What a stream message says; None for any other, and for one that is not as it should be."""
    if msg_type != "stream" or message.channel is not Channel.IOPUB or len(message.parts) != 4:
        return None
    try:
        content = message.content()
    except MessageError:
        return None
    name, text = content.get("name"), content.get("text")
    if not isinstance(name, str) or not isinstance(text, str):
        return None
    return Said(name, text)


def say(like: Message, number: int, what: Said) -> Message:
    """The message `like`, with this text. Every `number` but 0 makes an id of its own: receivers may pass
    over what comes twice."""
    header = like.parts[0]
    if number:
        fields = like.header()
        header = pack(dict(fields, msg_id=f"{fields.get('msg_id')}.{number}"))
    return like.replace(parts=(header, *like.parts[1:3], pack(what._asdict())))


def split(message: Message, msg_type: str) -> List[Message]:
    """Messages of at most PIECE characters that together say what a long stream message says."""
    if len(message.parts[-1]) <= PIECE:
        return [message]
    whole = said(message, msg_type)
    if whole is None:
        return [message]
    pieces = [whole.text[at : at + PIECE] for at in range(0, len(whole.text), PIECE)]
    return [say(message, number, Said(whole.name, text)) for number, text in enumerate(pieces)]


def pack(value: Any) -> bytes:
    """JSON as kernels write it: UTF-8, escapes only for what UTF-8 cannot say."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()
