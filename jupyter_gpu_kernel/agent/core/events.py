"""What happens outside the core of a keeper. `KeeperCore.handle` calls a method with the fields of an event."""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, NamedTuple, Optional, Sequence, Tuple

from ...wire.messages import Lane, Message


class HubAttached(NamedTuple):
    """A hub has attached, which numbers its messages; `counts`: how many of them have come, per lane."""

    hub: str
    counts: Sequence[int]


class HubDetached(NamedTuple):
    """No hub is attached any more."""


class HubReads(NamedTuple):
    """The hub has the messages below these serial numbers, one for each lane. `window`: how many bytes may be on their
    way to the hub."""

    serials: Sequence[int]
    window: int


class QueueRead(NamedTuple):
    """The bytes of the oldest messages that wait for the hub, as `ReadQueue` has asked for. `more`: whether others
    wait behind them."""

    messages: Sequence[bytes]
    more: bool


class HubSent(NamedTuple):
    """A message of the hub has come. `counts`: how many have come now, per lane."""

    counts: Sequence[int]
    message: Message


class Tell(NamedTuple):
    """The keeper has a message for the hub that is attached, or for the next one."""

    lane: Lane
    message: Message


class FrontEndReturned(NamedTuple):
    """Another front end attaches, which knows nothing of the requests so far.

    other_kernels: The ids of older kernels that its notebook has left.
    unread: The keys of the requests about which messages wait for the hub.
    utc_offset: By how many seconds local time is ahead of UTC.
    """

    other_kernels: Sequence[str]
    unread: AbstractSet[str]
    utc_offset: int


class InterruptRequested(NamedTuple):
    """The kernel's user wants to interrupt the cell that runs, or the first one that waits."""


class HistoryRead(NamedTuple):
    """A page has read the logged cells, and fills those that it shows."""


class MissedRequested(NamedTuple):
    """The missed cells are to be shown as output of the request with this header. `utc_offset`: by how many seconds
    local time is ahead of UTC."""

    parent: bytes
    utc_offset: int


class KernelStarting(NamedTuple):
    """A process of the kernel is about to be started. `taken_over`: it runs already, under a keeper that was killed."""

    taken_over: bool = False


class LogCompleted(NamedTuple):
    """Whether the log has all that a successor needs: see `LogState.is_complete`."""

    is_complete: bool


class KernelUp(NamedTuple):
    """The kernel takes requests. `kernel_info`: the content of its kernel_info_reply."""

    kernel_info: Dict[str, Any]


class KernelRestarting(NamedTuple):
    """Another process is to follow: it gets the requests from now on, and those that waited are refused."""


class KernelGone(NamedTuple):
    """The process has ended, and the reason is not known yet: requests wait until `KernelEnded`."""


class KernelEnded(NamedTuple):
    """The process has ended for this reason. `for_good`: no other process follows."""

    reason: str
    for_good: bool


class KernelSent(NamedTuple):
    """A message of the kernel has come."""

    message: Message


class CodePinned(NamedTuple):
    """The code that a cell has named is pinned, unless there is a problem."""

    problem: str


class GpusChanged(NamedTuple):
    """The kernel's GPUs have changed, or what is known of them.

    ready: Whether the kernel knows all that it needs, so that no cell need wait. names: As users know them.
    waiting_text: What the cells wait for that need GPUs; None: as before.
    """

    ready: bool
    names: Sequence[str]
    waiting_text: Optional[str] = None


class CellsFailed(NamedTuple):
    """The cells that wait for code or GPUs end with this error; `only_first`: the first one, and those that must not
    run if it fails."""

    name: str
    reason: str
    only_first: bool = False


class GreetingChanged(NamedTuple):
    """The next user cell shows this text as well, in place of the last one of this kind; "" withdraws it.

    kind: "notice": about the kernel; "warning"; "replaced": the text is the id of a kernel that has ended, and that
        this one replaces.
    """

    kind: str
    text: str


class TimerDue(NamedTuple):
    """The time of the effect `SetTimer` with this name has come."""

    name: str


Event = Tuple[Any, ...]
"""One of the above."""
