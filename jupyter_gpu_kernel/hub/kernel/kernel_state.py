"""What the hub knows of one remote kernel: where it is, its last status, and what its front ends want of it.

Here is also how a kernel is described to clients, and what all kernels of a hub share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import GpuKernelError
from ...wire.runtime import Runtime
from ..front_end.delivered import Delivered
from ..front_end.sockets import Bind, Sockets
from ..kernel_settings import KernelSettings
from ..node.attachments import open_arguments
from ..node.node_link import NodeLink
from .core.kernel_core import KernelCore
from .core.life import Life, LinkState, Phase
from .kernel_info import KernelInfoCache

if TYPE_CHECKING:
    from .starter import Starter
    from .vscode.sessions import VSCodeSession


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


@dataclass(frozen=True)
class Origin:
    """How the hub comes to a kernel.

    how: "create" a kernel; "attach" to a kernel that runs; or "adopt" a kernel of a hub that was killed, whose front
        end uses these ports already.
    delivered: The file with what front ends have received.
    session: Finds out which notebook of VS Code the kernel belongs to.
    starter: Starts the kernel when its user runs a cell. Until then the kernel has a `NoLink`.
    """

    how: str = "create"
    delivered: Delivered | None = None
    session: VSCodeSession | None = None
    starter: Starter | None = None


CREATED = Origin()


class KernelState:
    """`life` is what is known of the kernel; most of it can be read here, too."""

    def __init__(
        self, kernel_id: str, settings: KernelSettings, link: NodeLink, origin: Origin = CREATED
    ) -> None:
        self.kernel_id = kernel_id
        self.settings = settings
        self.link = link
        self.life = Life()
        self.session, self.starter = origin.session, origin.starter
        self.open_arguments = open_arguments(origin.how, settings)
        """{} once the kernel was attached."""
        self._changed = asyncio.Event()  # of which there is another one after each change

    @property
    def status(self) -> dict[str, Any]:
        """The last status that the keeper has reported, as `ps` shows it."""
        return self.life.status

    @property
    def can_be_found(self) -> bool:
        """Whether a front end can find the kernel again by its notebook. VS Code can, also if it has not named it."""
        return bool(self.settings.notebook) or self.is_of_vs_code

    @property
    def is_of_vs_code(self) -> bool:
        """Whether the kernel's front end is known to be VS Code."""
        return self.session is not None and self.session.from_vs_code

    @property
    def waits_for_link(self) -> bool:
        """Whether VS Code restarts a kernel, or returns to it, while the link is down, for which the start waits."""
        return self.session is not None and self.session.expected and self.link.state == "away"

    @property
    def link_state(self) -> LinkState:
        """The kernel's attachment to its node."""
        return self.life.link_state

    @property
    def phase(self) -> Phase:
        """What the front ends want of the kernel."""
        return self.life.phase

    @property
    def end_wanted(self) -> bool:
        """Whether the front ends want the kernel to end for good."""
        return self.life.end_wanted

    @property
    def error(self) -> GpuKernelError | None:
        """Why the kernel does not exist any more."""
        return self.life.error

    @property
    def ended(self) -> bool:
        """Whether the kernel process does not exist any more, as far as is known."""
        return self.life.ended

    @property
    def closed(self) -> bool:
        """Whether the hub does not have the kernel any more."""
        return self.life.closed

    @property
    def was_attached(self) -> bool:
        """Whether the link has carried the kernel, so that the link, if it is down now, comes back by itself."""
        return not self.open_arguments

    def wake(self) -> None:
        """Wake who waits for a change: something has changed, perhaps what the description does not show."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self, within: float | None = None) -> bool:
        """Return True at the next change; False if there is none within so many seconds."""
        try:
            return await asyncio.wait_for(self._changed.wait(), within)
        except asyncio.TimeoutError:
            return False

    async def until(self, condition: Callable[[], bool], within: float | None = None) -> None:
        """Return when the condition holds, the hub does not have the kernel any more, or the time is over."""
        clock = asyncio.get_running_loop().time
        deadline = None if within is None else clock() + within
        while not (condition() or self.closed):
            if not await self.change(None if deadline is None else max(0.0, deadline - clock())):
                return

    def set_link_state(self, state: LinkState) -> None:
        """Change the kernel's attachment to its node."""
        self.life.set_link_state(state)
        self.notify()

    def notify(self) -> None:
        """The description has changed: wake who waits for a change."""
        self.wake()


NO_CELLS = {"priority": 0, "place": None, "cells": 0, "last_cell": None}
"""What `ps` tells of a kernel that has run no cell."""


def describe(kernel: KernelState, core: KernelCore, front_ends: int) -> dict[str, Any]:
    """Return {…the keeper's status, "kernel_id" (Jupyter's), "link", "hop", "error", …}, as JSON for clients.
    `front_ends`: how many front ends the kernel has."""
    settings, link, link_state = kernel.settings, kernel.link, kernel.link_state
    shown = core.relay.placeholder
    if core.not_started:  # no link is needed before the start
        settings, link_state = settings.before_start(), LinkState.UP
    problem = kernel.error or (link.problem if link_state is LinkState.AWAY else None)
    away_since = core.relay.notice.since if link_state is LinkState.AWAY else 0.0
    status = {
        **kernel.status,
        "id": kernel.kernel_id,  # whatever the node says
        "state": shown.newest_state(kernel.status["state"]),
        "since": shown.since or kernel.status.get("since"),
    }
    described = {
        "node": link.name,
        "name": settings.name,
        **status,
        **times_of(status, link.round_trip if link_state is LinkState.UP else None),
        "link": link_state.value,
        "hop": link.name,
        "error": problem.to_json(settings.name) if problem else None,
        "away_since": away_since or None,
        "kernel_id": settings.kernel_id,
        "front_ends": front_ends,
    }
    if settings.hosts:  # where it is now, for another hub, which adopts it
        known = {"python": settings.python, "given_python": settings.given_python}
        described |= {"route": list(settings.route), **known}
    return described


def times_of(status: dict[str, Any], round_trip: float | None) -> dict[str, Any]:
    """Return {"busy_since", "ends_at", "round_trip_ms"}: since when a cell runs, the end of the kernel's job, and how
    long a message takes to the node and back, over a link that is up. A value that does not apply is None."""
    return {
        "busy_since": status.get("since") if status.get("state") == "busy" else None,
        "ends_at": (status.get("job") or {}).get("end_time"),
        "round_trip_ms": None if round_trip is None else round(round_trip * 1000, 1),
    }
