"""What happens to one remote kernel. `KernelCore.handle` calls a method with the fields of an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....errors import GpuKernelError
from ....wire.messages import Lane, Message
from ...front_end.requests import FrontEndFacts, SavedRequest

# -------------------------------------------------------------------------------- front ends and their processes


class FrontEndsChanged(NamedTuple):
    """The kernel has these front ends now, by number, the oldest first."""

    front_ends: Mapping[int, FrontEndFacts]


class Subscribed(NamedTuple):
    """A client has subscribed to iopub."""


class Requested(NamedTuple):
    """A front end sends a request. `unsent`: the bytes that wait in the keeper's endpoint; `is_away`: whether the
    kernel, which can be attached, has no open endpoint at present; `was_held`: whether requests were held already when
    this one came."""

    front_end: int
    request: Message
    unsent: int
    is_away: bool
    was_held: bool


class Commanded(NamedTuple):
    """The process that serves a front end, or the hub itself, has a command for the keeper, such as interrupt."""

    do: str
    arguments: dict[str, Any]


class Restarted(NamedTuple):
    """The front end wants a new kernel process. `host_lost`: the kernel's host cannot be used any more."""

    host_lost: bool


class Held(NamedTuple):
    """From now on requests wait, as the kernel that gets them is still to be started or found; or not any more."""

    held: bool


class Stopped(NamedTuple):
    """No front end needs the kernel, which is to end for this reason."""

    why: str


class KernelRefused(NamedTuple):
    """The front end does not get this kernel, for this reason."""

    reason: str


class Closed(NamedTuple):
    """The hub gives the kernel up. The keeper lives on."""


class VSCodeSeen(NamedTuple):
    """The kernel's front end is VS Code."""


class DisplaysInherited(NamedTuple):
    """The notebook may still show the displays with these ids, from the session before."""

    ids: Sequence[str]


# -------------------------------------------------------------------------------- keeper, link and time


class Recalled(NamedTuple):
    """A hub that was killed has left these requests in the kernel's file. This is the first event."""

    saved: list[SavedRequest]


class Arrived(NamedTuple):
    """A message of the keeper has come. `number` and `lane`: those of its last chunk; `pieces`: how many pieces of the
    message a killed hub has passed on; `has_room`: whether its recipients can receive more."""

    message: Message
    number: int
    lane: Lane
    pieces: int
    has_room: bool


class Woken(NamedTuple):
    """The time of the last `WakeAt` has come. `has_room`: whether the recipients of `Pacer.next_message` can receive
    more."""

    has_room: bool


class Attached(NamedTuple):
    """The stream to the keeper is open. `keeper`: the keeper's numbering; `connection`: what the keeper is told of the
    connection; "": nothing."""

    keeper: str
    connection: str


class Detached(NamedTuple):
    """The link is down, and reconnects by itself.

    problem: Why the link cannot reconnect, if that is known.
    silence: For how many seconds the node had been silent.
    since: The time of day at which the node fell silent, as the user's clocks show it.
    was_attached: Whether the kernel was attached before.
    waits: Whether the kernel's start waits for the link, as cells do.
    """

    problem: GpuKernelError | None
    silence: float
    since: str
    was_attached: bool
    waits: bool


class KernelTaken(NamedTuple):
    """Another computer has the kernel."""

    cause: str
    remedy: str


class KeeperLost(NamedTuple):
    """The kernel and its keeper do not exist any more. `error`: why; None if the kernel's starter handles the loss.
    `for_good`: the cell that has revived the kernel starts no other one."""

    error: GpuKernelError | None
    for_good: bool = False


class Switched(NamedTuple):
    """The front ends get the kernel with this id, on this node. It is another one than before, unless `kernel_id` is
    empty."""

    node: str
    kernel_id: str


# -------------------------------------------------------------------------------- the start with a cell


class Unstarted(NamedTuple):
    """There is no kernel, and a cell starts the next one. `node`: where it will be, for messages; `kernel_id`: its id,
    if it is another one than before."""

    node: str
    kernel_id: str


class StatusKnown(NamedTuple):
    """The hub itself knows this of the kernel's status. `wanted`: the kernel is wanted again, so what tells of its end
    is not known any more."""

    status: dict[str, Any]
    wanted: bool = False


class WaitExplained(NamedTuple):
    """Why the kernel has not been started yet; "": nothing is to be shown."""

    text: str


class StartFailed(NamedTuple):
    """No kernel is started for the cells that wait. `stopped`: the user has stopped the kernel before its start."""

    error: GpuKernelError
    stopped: bool = False


Event = (
    FrontEndsChanged | Subscribed | Requested | Commanded | Restarted | Held | Stopped | KernelRefused | Closed
    | VSCodeSeen | DisplaysInherited | Recalled | Arrived | Woken | Attached | Detached | KernelTaken | KeeperLost
    | Switched | Unstarted | StatusKnown | WaitExplained | StartFailed
)  # fmt: skip
