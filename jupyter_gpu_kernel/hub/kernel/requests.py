"""What the hub reads in messages that it passes on; the rest of them is nobody's business here.

A front end may sign what is no message: then each of these says no.
"""

from __future__ import annotations

from ...wire.messages import Channel, Lane, Message, MessageError
from ...wire.queues import MAX_MESSAGE, WINDOW

TOO_MUCH = f"what waits for {{}} would be more than {MAX_MESSAGE // 2**20} MiB; try again later"
"""Said of a request for which `too_much` holds; to be formatted with the node's name."""


def type_of(message: Message) -> str:
    """Its msg_type, or ""."""
    try:
        return str(message.header().get("msg_type"))
    except MessageError:
        return ""


def msg_id_of(message: Message, parent: bool = False) -> str:
    """Its msg_id, or that of the message which it answers; "" if there is none."""
    try:
        return str((message.parent() if parent else message.header()).get("msg_id") or "")
    except MessageError:
        return ""


def owners_only(message: Message) -> bool:
    """Whether only the front end that owns the kernel may ask this."""
    return message.channel is Channel.CONTROL and type_of(message) in (
        "interrupt_request",
        "shutdown_request",
    )


def restarts(shutdown: Message) -> bool:
    """Whether this shutdown_request is the beginning of a restart."""
    try:
        return bool(shutdown.content().get("restart"))
    except MessageError:
        return False


def failed_cell(message: Message) -> str:
    """The msg_id of the cell, if this is the reply of one that failed; else ""."""
    if message.channel is not Channel.SHELL or b'"error"' not in message.parts[3]:
        return ""
    try:
        failed = type_of(message) == "execute_reply" and message.content().get("status") == "error"
        return str(message.parent().get("msg_id", "")) if failed else ""
    except MessageError:
        return ""


def lane_of_request(request: Message) -> Lane:
    """What a front end's request may overtake."""
    return Lane.URGENT if request.channel in (Channel.CONTROL, Channel.STDIN) else Lane.ORDERED


def too_much(request: Message, held: list[Message], waiting: int) -> bool:
    """Whether this is larger than a message may be, or more than may wait behind `held` and `waiting` bytes."""
    size, *before = (sum(map(len, one.parts)) for one in (request, *held))
    waiting += sum(before)
    return size > MAX_MESSAGE - WINDOW or (waiting > 0 and waiting + size > MAX_MESSAGE)
