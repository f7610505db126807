"""What the hub knows of one remote kernel: where it is, its last status, and what its front ends want of it. And what
all kernels of a hub share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import GpuKernelError
from ...wire.runtime import Runtime
from ..front_end.delivered import Delivered
from ..front_end.front_ends import FrontEnd
from ..front_end.sockets import Bind, Sockets
from ..kernel_settings import KernelSettings
from ..node.attachments import open_arguments
from ..node.node_link import NodeLink
from .kernel_info import KernelInfoCache
from .states import LINK_STATES, PHASES, LinkState, Phase, transition

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
_OF_AN_END = ("asked", "cause", "remedy", "returncode")
"""The keys of a status that tell how the kernel has ended."""


class KernelState:
    """`status` is the last status that the keeper has reported, as `ps` shows it."""

    def __init__(self, kernel_id: str, settings: KernelSettings, link: NodeLink, how: str) -> None:
        """`how`: see Origin."""
        self.kernel_id = kernel_id
        self.settings = settings
        self.link = link
        self.status: dict[str, Any] = {"id": kernel_id, "state": "starting", "gpus": [], "pid": 0}
        self.link_state = LinkState.CONNECTING
        self.phase = Phase.RUN
        self.end_wanted = False
        """Whether the front ends want the kernel to end for good."""
        self.error: GpuKernelError | None = None
        self.open_arguments = open_arguments(how, settings)
        """{} once the kernel was attached."""
        self.absent: dict[FrontEnd, asyncio.TimerHandle] = {}
        """The front ends that have left and may return with their ports, and the timers at whose ends they do not."""
        self._taken_cause = ""
        self._pid_before_restart: int | None = None
        """The pid of the process that a restart replaces, until the keeper reports another pid. 0: there was no
        process; None: there is no restart."""
        self._watchers: list[Callable[[], None]] = []

    @property
    def ended(self) -> bool:
        """Whether the kernel process does not exist any more, as far as is known."""
        return self.status["state"] == "ended" or self.link_state is LinkState.LOST

    @property
    def was_attached(self) -> bool:
        """Whether the link has carried the kernel, so that the link, if it is down now, comes back by itself."""
        return not self.open_arguments

    @property
    def restarts(self) -> bool:
        """Whether the keeper was asked to restart the kernel, and has not reported the new process yet."""
        return self._pid_before_restart is not None

    @property
    def taken_cause(self) -> str:
        """The sentence that another computer has taken the kernel over; "" if none has."""
        return self._taken_cause if self.link_state is LinkState.TAKEN else ""

    @property
    def lost_cause(self) -> str:
        """Why the kernel does not exist any more, and what to do; "" if it exists, or a request may start it."""
        lost = self.error if self.link_state is LinkState.LOST else None
        return f"{lost.cause}. {lost.remedy}" if lost else ""

    @property
    def closed(self) -> bool:
        """Whether the hub does not have the kernel any more."""
        return self.phase is Phase.CLOSED

    def forget_absent(self) -> None:
        """No front end can return any more."""
        for timer in self.absent.values():
            timer.cancel()
        self.absent.clear()

    @contextlib.contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """A context in which `watcher()` is called whenever the description has changed."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def show_status(self, **status: Any) -> None:
        """Add to the status what the hub knows by itself."""
        self.status = dict(self.status, **status)
        self.notify()

    def wanted_status(self, **status: Any) -> dict[str, Any]:
        """Return the status with these facts, and without those of an end, as the kernel is wanted again."""
        kept = {key: value for key, value in self.status.items() if key not in _OF_AN_END}
        return {**kept, **status}

    def show_wanted(self, **status: Any) -> None:
        """Add these facts to the status, and remove those of an end, as the kernel is wanted again."""
        self.status = self.wanted_status(**status)
        self.notify()

    def set_phase(self, phase: Phase) -> None:
        """Change what the front ends want of the kernel."""
        self.phase = transition(PHASES, self.phase, phase)
        if phase is not Phase.CLOSED:
            self.end_wanted = phase in (Phase.SHUT_DOWN, Phase.STOP)

    def shutdown_requested(self, *, restart: bool) -> None:
        """A front end has requested the kernel's shutdown, or its restart."""
        if self.phase not in (Phase.STOP, Phase.CLOSED):
            self.set_phase(Phase.RESTART if restart else Phase.SHUT_DOWN)

    def restart_begins(self) -> None:
        """The keeper is about to get the request to restart the kernel."""
        self._pid_before_restart = int(self.status.get("pid") or 0)

    def is_outdated(self, status: dict[str, Any]) -> bool:
        """Return whether this status reports the end of the process that a restart replaces. After a drop the keeper
        sends it before it gets the request to restart; a launcher that saw it would exit, as if its front end were to
        start it again."""
        if status.get("pid", 0) not in (0, self._pid_before_restart):
            self._pid_before_restart = None
        ended = status["state"] == "ended" and "returncode" in status  # else no process could be started
        return ended and self._pid_before_restart is not None and self.phase is Phase.RUN

    def wake(self) -> None:
        """Tell watchers that something has changed, also what the description does not show."""
        for watcher in list(self._watchers):
            watcher()

    async def change(self, within: float | None = None) -> bool:
        """Return True at the next change; False if there is none within so many seconds."""
        changed = asyncio.Event()
        with self.watched(changed.set):
            try:
                await asyncio.wait_for(changed.wait(), within)
            except asyncio.TimeoutError:
                return False
        return True

    async def until(self, condition: Callable[[], bool], within: float | None = None) -> None:
        """Return when the condition holds, the hub does not have the kernel any more, or the time is over."""
        clock = asyncio.get_running_loop().time
        deadline = None if within is None else clock() + within
        while not (condition() or self.closed):
            if not await self.change(None if deadline is None else max(0.0, deadline - clock())):
                return

    def set_link_state(self, state: LinkState) -> None:
        """Change the kernel's attachment to its node."""
        self.link_state = transition(LINK_STATES, self.link_state, state)
        self.notify()

    def notify(self) -> None:
        """Tell watchers that the description has changed."""
        self.wake()
