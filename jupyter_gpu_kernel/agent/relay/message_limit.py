"""What a kernel says in a message that is too large for the hub is replaced by a notice, or an error, which says so.

The hub closes an attachment whose unfinished messages exceed MAX_MESSAGE bytes, so such a message would end every
attachment again. Messages of different lanes arrive at the same time; therefore each lane has a share. This file knows
no sockets.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ...wire.compose import error_content, error_reply, make
from ...wire.messages import Channel, Lane, Message, MessageError, lane_of
from ...wire.queues import MAX_MESSAGE

_SMALL = 16 * 1024 * 1024
MOST: Mapping[Lane, int] = {
    Lane.URGENT: _SMALL,
    Lane.PROMPT: _SMALL,
    Lane.ORDERED: MAX_MESSAGE - 2 * _SMALL,
}
"""Bytes of an encoded message."""
_NAME = "MessageTooLarge"
_HEADER = 64 * 1024
"""Bytes of a request's header that a replacement repeats."""


def within(message: Message, most: Mapping[Lane, int] = MOST) -> List[Message]:
    """The message, or what is sent instead."""
    size = message.size
    if size <= min(most.values()):
        return [message]
    header = message.header()
    msg_type = str(header.get("msg_type"))
    limit = most[lane_of(message, msg_type)]
    if size <= limit:
        return [message]
    why = f"{msg_type[:64]} of {size / 1e6:.1f} MB: a message may have at most {limit / 1e6:.1f} MB"
    parent = message.parts[1] if len(message.parts[1]) <= _HEADER else b"{}"
    session = str(header.get("session"))[:256]

    def instead(kind: str, content: Dict[str, Any], channel: Channel = message.channel) -> Message:
        return Message(channel, message.client, make(kind, content, parent, session))

    text = f"\n[… left out here: {why} …]\n"
    notice = instead("stream", {"name": "stderr", "text": text}, Channel.IOPUB)
    if message.channel is Channel.IOPUB:
        return [instead("error", error_content(_NAME, why)) if msg_type == "error" else notice]
    if message.channel is Channel.STDIN:
        hidden = bool(_content(message).get("password"))
        return [instead(msg_type[:64], {"prompt": text, "password": hidden})]
    if msg_type != "execute_reply":
        return [instead(msg_type[:64], dict(error_content(_NAME, why), status="error"))]
    content = _content(message)
    reply = instead(msg_type, error_reply(_NAME, why, content.get("execution_count") or 0))
    return [reply] if content.get("status") == "error" else [notice.replace(client=0), reply]


def _content(message: Message) -> Dict[str, Any]:
    try:
        return message.content()
    except MessageError:
        return {}
