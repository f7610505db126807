"""VS Code: which notebook a launcher belongs to, and whether the launcher is a restart or a return.

VS Code starts a new launcher with a new key for every start of a kernel, and only the messages tell its notebook:
start-up code, or a cell's id. So a session begins with a new kernel. When the notebook is known, that kernel becomes
the notebook's, or the front end gets the kernel that this notebook left before.

A session is a restart if the previous session of its window, kernelspec and notebook had not ended when it started: VS
Code starts the new launcher before it ends the old one, and a notebook that was closed is opened later. At
a restart the new kernel stays, and the old one ends (`pending_stops.py`) and hands over its GPUs.

Only a file can return to its kernel: VS Code calls the first unsaved notebook of every window `Untitled-1.ipynb`. But
in one window that name means one notebook at a time, so that an unsaved notebook can be restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any, NamedTuple

from ....errors import AgentRefusal, GpuKernelError
from ....wire.kernel_messages.compose import is_user_cell
from ....wire.messages import Message
from ...background import BackgroundTasks
from ..core.events import DisplaysInherited, VSCodeSeen
from ..remote_kernel import RemoteKernel
from ..starter import LeftKernel
from .notebook import is_file, title_of
from .pending_stops import Key, PendingStop, PendingStops, until_settled

RESTART_WINDOW = 0.3
"""Seconds by which a session may seem to begin after the one that it restarts has ended, as clocks and file systems are
not exact. No user closes a notebook and opens it again in so short a time."""
_LEAVING = 2.0
"""Seconds in which a launcher notices that its window has gone, which may be opened again by then."""
_MAX_ENDED = 100
"""Sessions that have ended and are remembered; of more the oldest are forgotten."""
_MAX_TRIES = 10
"""Requests to an agent that does not answer, each over another connection as a rule."""
Window = tuple[int, str]
"""The window's process, and a kernelspec that is used there."""


class EndedSession(NamedTuple):
    """A session that has ended, at the `time` by `VSCodeSessions.clock`. `displays`: the ids of the transient displays
    that were shown then."""

    left: LeftKernel
    window: Window
    time: float
    displays: tuple[str, ...] = ()

    def may_be_restarted_by(self, window: Window, started: float) -> bool:
        """Whether, by the time alone, a launcher that this window started at `started` may be the restart of this
        session's kernel."""
        return window == self.window and started - self.time < RESTART_WINDOW


class VSCodeSessions:
    """All sessions of this hub: which of them left which kernel, and when."""

    def __init__(
        self,
        clock: Callable[[], float],
        stops: PendingStops | None = None,
        on_return: Callable[[str, str], None] = lambda name, notebook: None,
    ) -> None:
        """`on_return(name, notebook)` is called before a notebook gets the kernel that it left."""
        self.clock = clock
        self.stops = PendingStops() if stops is None else stops
        self.on_return = on_return
        self._ended_sessions: dict[Key, EndedSession] = {}
        self._current: dict[Key, VSCodeSession] = {}
        self._ended = asyncio.Event()

    def use(self, name: str) -> bool:
        """Return whether VS Code has, or had, a kernel of this kernelspec at this hub."""
        known = any(key[1] == name for key in (*self._current, *self._ended_sessions))
        return known or name in self.stops.names()

    def begin(self, session: VSCodeSession) -> None:
        """The session's launcher has a kernel. The notebook is known only where a killed hub had the kernel before."""
        if session.title:
            self._current[session.key] = session

    def may_restart(self, window: Window, started: float) -> list[EndedSession]:
        """Return the ended sessions whose kernels may be restarted by a launcher that this window started at
        `started`."""
        return [one for one in self._ended_sessions.values() if one.may_be_restarted_by(window, started)]

    def identified(self, session: VSCodeSession) -> tuple[VSCodeSession | None, EndedSession | None]:
        """The session's notebook is known. Return another session of this window that has the notebook still, and the
        last session that had the notebook: in this window or, if the notebook is a file, in another window."""
        overlapped = self._current.get(session.key)
        self._current[session.key] = session
        own = self._ended_sessions.pop(session.key, None)
        if own is not None or not session.notebook:
            return overlapped, own
        same = [key for key in self._ended_sessions if key[1:] == session.key[1:]]
        return overlapped, self._ended_sessions.pop(same[-1]) if same else None

    def renamed(self, session: VSCodeSession, title: str) -> None:
        """The session's notebook, which was not saved before, is a file now."""
        if self._current.get(session.key) is session:
            del self._current[session.key]
        before = session.lasting_key
        session.title = title
        self._current[session.key] = session
        self.stops.rename(before, session.lasting_key)

    async def left_elsewhere(self, session: VSCodeSession) -> None:
        """Return when no other window has this notebook, or after a moment, as such a window may have gone."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LEAVING
        while any(key[1:] == session.key[1:] and key != session.key for key in self._current):
            self._ended.clear()
            try:
                await asyncio.wait_for(self._ended.wait(), deadline - loop.time())
            except asyncio.TimeoutError:
                return

    def end(self, session: VSCodeSession, remote: RemoteKernel) -> None:
        """A session ends. Its kernel lives on, unless a session that restarts this kernel has begun."""
        if not session.title:
            return
        left = _left(remote)
        ended = EndedSession(left, session.window, self.clock(), tuple(remote.core.relay.displays.ids))
        current = self._current.get(session.key, session)
        if current is not session:
            return current.replace_later(ended)
        self._current.pop(session.key, None)
        self._ended.set()
        self._ended_sessions.pop(session.key, None)
        self._ended_sessions[session.key] = ended
        if len(self._ended_sessions) > _MAX_ENDED:
            del self._ended_sessions[next(iter(self._ended_sessions))]


@dataclass(eq=False)
class VSCodeSession:
    """One launcher that did not name its notebook. `observe` gets the front end's requests before the kernel does."""

    sessions: VSCodeSessions = field(repr=False)
    parent: int
    """The window's process."""
    name: str
    """The kernelspec."""
    title: str = ""
    """The notebook as VS Code calls it: a path, or the name of an unsaved one; "" while it is not known. A hub that was
    killed may have known it."""
    used: bool = False
    """Whether a cell may have been run already."""
    age: InitVar[float] = 0.0
    """The seconds since the front end has started the launcher."""
    from_vs_code: bool = False
    """Whether this hub, or a killed hub before, has seen a request that only VS Code sends."""

    def __post_init__(self, age: float) -> None:
        self.window = self.parent, self.name
        self.started = self.sessions.clock() - age
        self.expected = self.sessions.use(self.name)
        """Whether this may be a restart or a return, rather than VS Code's first kernel of this kernelspec."""
        self._remote: RemoteKernel | None = None
        self._tasks = BackgroundTasks()

    @property
    def key(self) -> Key:
        """The window's process, the kernelspec, the notebook."""
        return (*self.window, self.title)

    @property
    def lasting_key(self) -> Key:
        """The key with 0 for the process, if the notebook can be recognised in another window."""
        return (0, *self.key[1:]) if is_file(self.title) else self.key

    @property
    def notebook(self) -> str:
        """The notebook's path; "" while it is not known, or not saved."""
        return self.title if is_file(self.title) else ""

    @property
    def restarted_on(self) -> str:
        """The host of the kernel that this launcher may restart; "" if there is none."""
        ended = self.sessions.may_restart(self.window, self.started)
        return max(ended, key=lambda one: one.time).left.link.name if ended else ""

    def observe(self, remote: RemoteKernel, request: Message) -> None:
        """Take note of a request on the shell channel."""
        title = "" if self.notebook and self.from_vs_code else title_of(request)
        if title and not self.from_vs_code:
            self.from_vs_code = True
            remote.report(VSCodeSeen())
        if title and not self.title:
            self.title, self._remote = title, remote
            remote.hold()
            self._tasks.spawn(self._identified(remote, self.used))
        elif is_file(title) and not self.notebook:
            self.sessions.renamed(self, title)
            remote.set_notebook(title)
        self.used = self.used or is_user_cell(request)

    def replace_later(self, ended: EndedSession) -> None:
        """An earlier session of this window and notebook, which overlapped with this session, has ended."""
        if self._remote is not None:
            self._remote.hold()
            self._tasks.spawn(self._replace_overlapping(self._remote, ended))

    async def _identified(self, remote: RemoteKernel, used: bool) -> None:
        """The notebook is known: decide which kernel the notebook gets. `used`: whether the user has variables in the
        new kernel."""
        try:
            overlapped, before = self.sessions.identified(self)
            earlier = self.sessions.stops.of(self.lasting_key)
            restarted = before
            if before is not None and not before.may_be_restarted_by(self.window, self.started):
                restarted = None
            if restarted is not None or earlier:
                await self._replace(remote, restarted, earlier)
            elif overlapped is not None:  # `replace_later` ends its kernel
                overlapped.hand_over(remote)
            elif self.notebook and not used:
                await self._return(remote, before.displays if before is not None else ())
            if self.notebook:
                remote.set_notebook(self.notebook)
        finally:
            remote.resume()

    async def _replace_overlapping(self, remote: RemoteKernel, ended: EndedSession) -> None:
        try:
            await self._replace(remote, ended)
        finally:
            remote.resume()

    async def _return(self, remote: RemoteKernel, displays: Sequence[str]) -> None:
        """Give the front end the kernel that its notebook left, if there is one, and end the new kernel. `displays`:
        the ids of the transient displays that the notebook may still show."""
        await self.sessions.left_elsewhere(self)
        self.sessions.on_return(self.name, self.notebook)
        remote.report(DisplaysInherited(displays))
        wanted: dict[str, Any] = {"name": self.name, "notebook": self.notebook, **remote.owner}
        wanted["attached_ids"] = remote.link.kernel_ids
        fresh = _left(remote)
        left, starter = await self._take_left(remote, wanted), remote.starter
        if left and len(remote.front_ends):  # else the front end has left meanwhile
            remote.switch(left)
        elif left or starter is None or not await starter.find_left(remote, self.notebook):
            return
        self.sessions.stops.add_fresh(fresh)

    def hand_over(self, remote: RemoteKernel) -> None:
        """Another session replaces this session's kernel by `remote`, which starts in the same job or on the same
        host."""

        async def later() -> None:
            """`replace_later` ends the kernel."""

        if self._remote is not None and remote.starter is not None:
            remote.starter.replace(remote, _left(self._remote), later)

    async def _replace(
        self, remote: RemoteKernel, ended: EndedSession | None, earlier: Sequence[PendingStop] = ()
    ) -> None:
        """End the kernel of the session `ended`, and the kernels of `earlier` restarts that could not be ended yet. The
        new kernel gets their GPUs, or the job."""
        stops = self.sessions.stops
        for stop in earlier:
            stops.replace(stop, remote)
        if ended is not None:
            remote.report(DisplaysInherited(ended.displays))
            end = partial(self._end, remote, ended.left)
            if remote.starter is None or not remote.starter.replace(remote, ended.left, end):
                await end()
        for stop in earlier:
            await stops.done(stop, remote)

    async def _end(self, remote: RemoteKernel, left: LeftKernel) -> None:
        stops = self.sessions.stops
        await stops.done(stops.add(left, self.lasting_key, remote), remote)

    async def _take_left(self, remote: RemoteKernel, wanted: dict[str, Any]) -> str:
        """Return the id of the kernel that the notebook has left on the node of `remote`, also where the link is down
        for a while; "" if there is none, or if the front end has left."""
        link = remote.link
        for _ in range(_MAX_TRIES):
            if link is not remote.link or not len(remote.front_ends):
                break
            try:
                return str((await link.request("take_detached", **wanted)).get("kernel") or "")
            except AgentRefusal:
                break
            except GpuKernelError:
                await until_settled(remote)
        return ""


def _left(remote: RemoteKernel) -> LeftKernel:
    return LeftKernel(remote.kernel_id, remote.link, remote.settings)
