"""The size of one message of the kernel: one that is too large for the hub is replaced by a notice or an error."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ...wire.kernel_messages.compose import dump, error_content, error_reply, make
from ...wire.messages import Channel, Lane, Message, content_of, lane_of
from ...wire.runtime import Runtime
from ...wire.stream.queues import MAX_MESSAGE

_SMALL = 16 * 1024 * 1024
MESSAGE_LIMITS: Mapping[Lane, int] = {
    Lane.URGENT: _SMALL,
    Lane.PROMPT: _SMALL,
    Lane.ORDERED: MAX_MESSAGE - 2 * _SMALL,
}
"""The size of one encoded message, in bytes.

The hub closes an attachment whose incomplete messages exceed MAX_MESSAGE bytes, so a larger message would end every
attachment again. Messages of different lanes arrive at the same time; therefore each lane has a share.
"""
_NAME = "MessageTooLarge"
_MAX_HEADER = 64 * 1024
"""The size of a request's header up to which a replacement repeats it, in bytes."""


def limit_size(runtime: Runtime, message: Message) -> List[Message]:
    """Return the message, or a notice or an error in its place if it is too large for the hub."""
    size = message.size
    if size <= min(MESSAGE_LIMITS.values()):
        return [message]
    limit = MESSAGE_LIMITS[lane_of(message, message.msg_type)]
    if size <= limit:
        return [message]
    msg_type = message.msg_type[:64]
    reason = f"{msg_type} of {size / 1e6:.1f} MB: a message may have at most {limit / 1e6:.1f} MB"
    return _replacement(runtime, message, msg_type, reason)


def _replacement(runtime: Runtime, message: Message, msg_type: str, reason: str) -> List[Message]:
    parent = message.parts[1] if len(message.parts[1]) <= _MAX_HEADER else b"{}"

    def create(kind: str, content: Dict[str, Any], channel: Channel = message.channel) -> Message:
        parts = make(runtime, kind, content, parent)
        if channel is message.channel:  # a successor of this keeper knows the message by its msg_id
            parts = (dump(dict(message.header(), msg_type=kind)), *parts[1:])
        return Message(channel, message.client, parts)

    text = f"\n[… left out here: {reason} …]\n"
    notice = create("stream", {"name": "stderr", "text": text}, Channel.IOPUB)
    if message.channel is Channel.IOPUB:
        return [create("error", error_content(_NAME, reason)) if msg_type == "error" else notice]
    if message.channel is Channel.STDIN:
        hidden = bool(content_of(message).get("password"))
        return [create(msg_type, {"prompt": text, "password": hidden})]
    if msg_type != "execute_reply":
        return [create(msg_type, dict(error_content(_NAME, reason), status="error"))]
    content = content_of(message)
    reply = create(msg_type, error_reply(_NAME, reason, content.get("execution_count") or 0))
    return [reply] if content.get("status") == "error" else [notice.replace(client=0), reply]
