"""What the core of a keeper wants done, in the order in which it has to be done."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

from ...wire.messages import Lane, Message


class Logged(NamedTuple):
    """The log has changed: `LogState.<change>(*arguments)`, at this time in seconds since 1970. The file has to have
    the change before hub or kernel see anything of it. By "wait" a message is added to the queue for the hub, and by
    "leave" this queue becomes empty."""

    change: str
    now: float
    arguments: Tuple[Any, ...]


class ToHub(NamedTuple):
    """These bytes of a message may be sent to the hub."""

    lane: Lane
    data: bytes


class ReadQueue(NamedTuple):
    """Report the oldest messages that wait for the hub, of about so many bytes, as `QueueRead`: they wait no longer."""

    size: int


class WithdrawFromHub(NamedTuple):
    """What was to be sent to the hub and is not acknowledged is for nobody."""


class ToKernel(NamedTuple):
    """Send this request to the kernel."""

    request: Message


class CommandReceived(NamedTuple):
    """The hub has a command for the keeper."""

    command: Message


class RequestReceived(NamedTuple):
    """A request of a front end is handled next. `by_user`: it is a cell that a user has run."""

    request: Message
    by_user: bool


class ReplySent(NamedTuple):
    """The reply to the cell with this msg_id was sent to the hub, or was logged for later."""

    msg_id: str


class Want(NamedTuple):
    """The first cell that waits for code names the code to pin, and another one needs GPUs. None: no cell waits for
    that."""

    code: Optional[Message]
    gpus: Optional[Message]


class SetTimer(NamedTuple):
    """The event `TimerDue` with this name is due at this time of the monotonic clock, and no earlier one."""

    name: str
    at: float


class InputRejected(NamedTuple):
    """What hub or kernel have sent was refused."""

    error: Exception


Effect = Tuple[Any, ...]
"""One of the above."""
