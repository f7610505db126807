"""What a relay asks of the kernel whose messages it passes on, and what it reports to that kernel; and what all kernels
of a hub share."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....wire.messages import Message
from ....wire.runtime import Runtime
from ...front_end.front_ends import FrontEnd
from ...front_end.sockets import Bind, Sockets
from .placeholder import KernelInfoCache


@dataclass(frozen=True)
class HubContext:
    """What all kernels of a hub share.

    owner: This user and computer, see `paths.owner`.
    bind: Binds the sockets of a front end.
    """

    runtime: Runtime
    log: logging.Logger
    infos: KernelInfoCache | None = None
    owner: Mapping[str, str] = field(default_factory=dict)
    bind: Bind = Sockets


class RelayedKernel(Protocol):
    """`remote_kernel.py: RemoteKernel` is one."""

    @property
    def kernel_id(self) -> str:
        """The kernel's id at the node."""

    @property
    def taken_cause(self) -> str:
        """The sentence that another computer has taken the kernel over; "" if none has."""

    @property
    def lost_cause(self) -> str:
        """Why the kernel does not exist any more, and what to do; "" if it exists, or a request may start it."""

    @property
    def is_reachable(self) -> bool:
        """Whether the kernel was attached before, or can be attached at present."""

    @property
    def is_of_vs_code(self) -> bool:
        """Whether the kernel's front end is known to be VS Code."""

    def event(self) -> dict[str, Any]:
        """Return the kernel's state as an event for front ends."""

    def revive_if_ended(self, front: FrontEnd, request: Message) -> None:
        """Start the kernel anew if it has ended by itself and this request is a cell of its user."""

    def observe_shell_request(self, request: Message) -> None:
        """A front end sends this request on the shell channel."""

    def shutdown_requested(self, *, restart: bool) -> None:
        """A shutdown_request is sent to the kernel."""

    def cell_waits_for_start(self) -> None:
        """A cell of the user waits for the kernel, which has not been started."""

    def interrupted_before_start(self) -> None:
        """The user has interrupted the kernel, which has not been started: the cells that waited were canceled."""

    def shut_down_before_start(self, *, restart: bool) -> None:
        """A front end has requested the shutdown of the kernel, which has not been started."""

    def take_back(self) -> None:
        """A user's cell takes the kernel back from another computer."""

    def taken_over(self) -> None:
        """A front end has taken the kernel over from the one that owned it."""

    def status_reported(self, status: dict[str, Any]) -> None:
        """The keeper reports the kernel's status."""
