"""What the core of one remote kernel wants done. Effects are carried out in the order of their list, and the hub may be
killed between any two: so what has to be in a file comes before what is sent because of it."""

from __future__ import annotations

from typing import NamedTuple

from ....wire.messages import Lane, Message
from ...front_end.requests import Change


class WriteRequests(NamedTuple):
    """Write these changes to the kernel's file of requests."""

    changes: list[Change]


class ToKeeper(NamedTuple):
    """Send a message to the keeper, when the link is up."""

    lane: Lane
    message: Message


class ToFrontEnds(NamedTuple):
    """Send a message to its client; a message on iopub to all clients."""

    message: Message


class SaveProgress(NamedTuple):
    """A message of the keeper was delivered, or waits: save how many were delivered, and acknowledge no chunk from the
    number `oldest` on (0: acknowledge all). `waiting`: how many messages wait, per lane; `pieces`: how many pieces of
    the next ordered message were delivered."""

    oldest: int
    waiting: tuple[int, ...]
    pieces: int


class WakeAt(NamedTuple):
    """Report `Woken` at this monotonic time, or at once if the time has passed, instead of at any time before. None: do
    not report it."""

    at: float | None


class Learn(NamedTuple):
    """Keep this content of a kernel_info_reply for the placeholder of the next kernel."""

    kernel_info: bytes


class Notify(NamedTuple):
    """Tell front ends and watchers that the description has changed."""


class Wake(NamedTuple):
    """Tell watchers that something has changed, also what the description does not show."""


class ReportShutdown(NamedTuple):
    """Tell the process of this front end that the front end has requested the kernel's shutdown. `denied`: the kernel
    goes on, and has ended for this front end only."""

    front_end: int
    denied: bool


class RestoreSockets(NamedTuple):
    """Make the files of front ends' ipc sockets again, which jupyter_client removes before a restart."""


class UseKernel(NamedTuple):
    """Exchange messages with the keeper of the kernel with this id, by a new endpoint."""

    kernel_id: str


class TakeBack(NamedTuple):
    """Attach the kernel again, which another computer has, by a new endpoint."""


class CreateAnew(NamedTuple):
    """Create the kernel with another id, as processes of the old kernel may still run, and use it as `UseKernel`
    does."""


class AttachKernel(NamedTuple):
    """Let the link carry the kernel."""


class TellStarter(NamedTuple):
    """Let the starter prepare for another kernel, which it reports as `Unstarted`. `interrupted`: only let the starter
    know that the user has interrupted the kernel before its start."""

    interrupted: bool


class LogText(NamedTuple):
    """Write this to the hub's log. `error`: a bug of ours; None: the text is about what a keeper does."""

    text: str
    error: Exception | None = None


Effect = (
    WriteRequests | ToKeeper | ToFrontEnds | SaveProgress | WakeAt | Learn | Notify | Wake | ReportShutdown
    | RestoreSockets | UseKernel | TakeBack | CreateAnew | AttachKernel | TellStarter | LogText
)  # fmt: skip
