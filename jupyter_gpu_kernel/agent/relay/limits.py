"""Limits of what passes through the relay: requests that wait for the kernel, and the size of a kernel's message."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, List, Mapping

from ...wire.compose import error_content, error_reply, make
from ...wire.messages import Channel, Lane, Message, MessageError, lane_of
from ...wire.queues import MAX_MESSAGE
from ...wire.runtime import Runtime

MAX_WAITING = 256 * 1024 * 1024
"""The size of all requests that wait, in bytes. A single request may be larger if no other one waits."""
MAX_REQUESTS = 100_000
"""The number of requests that wait."""
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


class QueueLimit:
    """The requests that wait, in the keeper or in the kernel's own queue, until a status of the kernel names them."""

    def __init__(self) -> None:
        self._size = 0
        self._waiting: OrderedDict[str, int] = OrderedDict()

    def admit(self, request: Message) -> bool:
        """Count a request as waiting; return False if there is no room for it."""
        if request.channel is Channel.STDIN:  # the kernel publishes no status for an input_reply
            return True
        size = sum(map(len, request.parts))
        if self._waiting and (self._size + size > MAX_WAITING or len(self._waiting) >= MAX_REQUESTS):
            return False
        self._size += size - self._waiting.pop(request.msg_id, 0)
        self._waiting[request.msg_id] = size
        return True

    def release(self, msg_id: str) -> None:
        """The kernel has begun this request, or it was answered in the kernel's place."""
        self._size -= self._waiting.pop(msg_id, 0)

    def clear(self) -> None:
        """Forget all requests: the kernel's process is another one."""
        self._waiting.clear()
        self._size = 0


def limit_size(
    runtime: Runtime, message: Message, limits: Mapping[Lane, int] = MESSAGE_LIMITS
) -> List[Message]:
    """Return the message, or a notice or an error in its place if it is too large for the hub."""
    size = message.size
    if size <= min(limits.values()):
        return [message]
    limit = limits[lane_of(message, message.msg_type)]
    if size <= limit:
        return [message]
    msg_type = message.msg_type[:64]
    reason = f"{msg_type} of {size / 1e6:.1f} MB: a message may have at most {limit / 1e6:.1f} MB"
    return _replacement(runtime, message, msg_type, reason)


def _replacement(runtime: Runtime, message: Message, msg_type: str, reason: str) -> List[Message]:
    parent = message.parts[1] if len(message.parts[1]) <= _MAX_HEADER else b"{}"
    session = str(message.header().get("session"))[:256]

    def create(kind: str, content: Dict[str, Any], channel: Channel = message.channel) -> Message:
        return Message(channel, message.client, make(runtime, kind, content, parent, session))

    text = f"\n[… left out here: {reason} …]\n"
    notice = create("stream", {"name": "stderr", "text": text}, Channel.IOPUB)
    if message.channel is Channel.IOPUB:
        return [create("error", error_content(_NAME, reason)) if msg_type == "error" else notice]
    if message.channel is Channel.STDIN:
        hidden = bool(_content(message).get("password"))
        return [create(msg_type, {"prompt": text, "password": hidden})]
    if msg_type != "execute_reply":
        return [create(msg_type, dict(error_content(_NAME, reason), status="error"))]
    content = _content(message)
    reply = create(msg_type, error_reply(_NAME, reason, content.get("execution_count") or 0))
    return [reply] if content.get("status") == "error" else [notice.replace(client=0), reply]


def _content(message: Message) -> Dict[str, Any]:
    try:
        return message.content()
    except MessageError:
        return {}
