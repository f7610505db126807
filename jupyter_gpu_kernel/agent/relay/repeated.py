"""What a kernel repeats to the successor of a killed keeper."""

from __future__ import annotations

from ...wire.messages import Channel, Message
from ..log.log import Log
from .internal_requests import is_keepers_own
from .waiting import Waiting


def is_repeated(message: Message, log: Log, waiting: Waiting, is_up: bool) -> bool:
    """Return whether the kernel repeats this message, which a killed keeper has received.

    If the log of that keeper is lost, front ends do not get the output that the kernel repeats before it `is_up`, but
    they get the replies that the hub lacks.
    """
    if is_keepers_own(message):
        return False
    replies = [one.reply for one in waiting.executing(message.parent_key)]
    if message.channel is Channel.SHELL and None in replies:
        return False  # also if the log has a reply: the request was answered before the kernel ran it
    if log.found:
        held = [reply.msg_id for reply in replies if reply is not None]
        return message.msg_id in held or log.state.repeats(message)
    if message.channel is Channel.IOPUB:
        return not is_up
    return message.channel is not Channel.STDIN and message.parent_key not in log.state.requests.pending
