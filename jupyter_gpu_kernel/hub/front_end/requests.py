"""What the hub reads in the Jupyter messages that it passes on.

A front end may sign something malformed: then these functions return "" or False.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from ...wire.kernel_messages.compose import is_user_cell
from ...wire.messages import Channel, Lane, Message, MessageError, content_of, type_of
from ...wire.stream.queues import MAX_MESSAGE

MARGIN = 2 * 1024 * 1024
"""Bytes that a request must be smaller than a message may be: others, in other lanes, may be under way in part."""
QUEUE_FULL = f"the requests that wait for {{}} would exceed {MAX_MESSAGE // 2**20} MiB; try again later"
"""The reason for a request for which `exceeds_queue` holds; to be formatted with the node's name."""


class FrontEndFacts(NamedTuple):
    """What decides what a front end may do and gets; the fields are those of `FrontEndSpec`."""

    label: str
    rate_limited: bool
    revives: bool


class SavedRequest(NamedTuple):
    """A request in the file of a kernel (`delivered.py`). `mark`: a number below 255, whose meaning `RequestTable`
    knows."""

    mark: int
    message: Message


Change = tuple[bytes, SavedRequest | None]
"""What that file has to have for the request with this `header_key` from now on; None: nothing."""


def header_key(request: Message) -> bytes:
    """Return what tells a request from all others of its kernel: its channel and its whole header.

    A msg_id does not: the clients of one KernelManager have one session, and each client counts its own messages.
    """
    return bytes([request.channel]) + request.parts[0]


def answered_key(reply: Message) -> bytes:
    """Return the `header_key` of the request that this reply of the hub is for."""
    return bytes([reply.channel]) + reply.parts[1]


def needs_owner(request: Message) -> bool:
    """Return whether only the front end that owns the kernel may send this request."""
    types = ("interrupt_request", "shutdown_request")
    return request.channel is Channel.CONTROL and type_of(request) in types


def has_reply(message: Message) -> bool:
    """Return whether a front end expects a reply to this message."""
    return message.channel in (Channel.SHELL, Channel.CONTROL) and type_of(message).endswith("_request")


def is_own_code(request: Message) -> bool:
    """Return whether a front end runs this code by itself, and expects no values of it."""
    if type_of(request) != "execute_request" or is_user_cell(request):
        return False
    try:
        return not request.content().get("user_expressions")
    except MessageError:
        return False


def wants_restart(shutdown: Message) -> bool:
    """Return whether this shutdown_request begins a restart."""
    return bool(content_of(shutdown).get("restart"))


def failed_cell(message: Message) -> str:
    """Return the msg_id of the cell if this message is the reply to a cell that failed; else ""."""
    if message.channel is not Channel.SHELL or b'"error"' not in message.parts[3]:
        return ""
    with contextlib.suppress(MessageError):
        if message.msg_type == "execute_reply" and message.content().get("status") == "error":
            return message.parent_id
    return ""


def lane_of_request(request: Message) -> Lane:
    """Return the lane of a front end's request."""
    return Lane.URGENT if request.channel in (Channel.CONTROL, Channel.STDIN) else Lane.ORDERED


def may_be_repeated(request: Message) -> bool:
    """Return whether a kernel may get this request, which is no cell, twice: it changes nothing, or ends the kernel."""
    return request.channel is Channel.SHELL or type_of(request) in ("kernel_info_request", "shutdown_request")


def exceeds_queue(request: Message, waiting: int) -> bool:
    """Return whether this request is larger than a message may be, or does not fit into the queue, in which there are
    `waiting` bytes of others."""
    size = sum(map(len, request.parts))
    return size > MAX_MESSAGE - MARGIN or (waiting > 0 and waiting + size > MAX_MESSAGE)
