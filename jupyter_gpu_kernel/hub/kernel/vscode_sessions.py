"""VS Code: which notebook a launcher belongs to, and whether it means a restart or a return.

VS Code starts a new launcher with a new key for every start of a kernel, and only the messages tell its notebook:
start-up code, or a cell's id. So a session begins with a new kernel. When the notebook is known, that kernel becomes
the notebook's, or the front end gets the kernel that this notebook left before. If the session before it, of the same
window, kernelspec and notebook, had not ended when this one started, or hardly, it was a restart: the new kernel stays,
and the old one is ended and hands over its GPUs. If Python starts slowly, the notebook becomes known only after many
seconds; until then the kernels that may have been meant are paused. If the node cannot be reached, the old kernel is
ended later, also if its notebook has been closed meanwhile.

Only a file can return to its kernel: VS Code calls the first unsaved notebook of every window `Untitled-1.ipynb`. But
in one window that name means one notebook at a time, so that an unsaved notebook can be restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from ...errors import AgentRefusal, GpuKernelError
from ...wire.compose import is_user_cell
from ...wire.messages import Message
from ..background import BackgroundTasks
from ..node.node_link import NodeLink
from .remote_kernel import RemoteKernel
from .states import LinkState
from .vscode_notebook import is_file, title_of

RESTART_WINDOW = 1.0
"""Seconds between the end of a session and the start of the next one below which this is a restart. VS Code starts the
new launcher before it ends the old one, or at about the same time; a user closes and opens a notebook more slowly."""
_LEAVING = 2.0
"""Seconds in which a launcher notices that its window has gone, which may be opened again by then."""
_MAX_LEFT = 100
"""Kernels that were left, or that are to be ended, which are remembered; of more the oldest are forgotten."""
_MAX_TRIES = 10
"""Requests to an agent that does not answer, each over another connection as a rule."""
FindElsewhere = Callable[[RemoteKernel, dict[str, Any]], Awaitable[bool]]
Key = tuple[int, str, str]
"""The window's process, the kernelspec, the notebook."""


class LeftKernel(NamedTuple):
    """The kernel of a session that has ended. `time`: its end, by `VSCodeSessions.clock`; `displays`: the ids of the
    transient displays that were shown then."""

    kernel_id: str
    link: NodeLink
    time: float
    displays: tuple[str, ...] = ()


class VSCodeSessions:
    """All sessions of this hub: which of them left which kernel, and when."""

    def __init__(
        self,
        clock: Callable[[], float],
        on_return: Callable[[str, str], None] = lambda name, notebook: None,
        find_elsewhere: FindElsewhere | None = None,
    ) -> None:
        """`on_return(name, notebook)` is called before a notebook gets the kernel that it left. `find_elsewhere(remote,
        wanted)` gives the front ends of a new kernel the one that they left on another host, if there is one."""
        self.find_elsewhere = find_elsewhere
        self.clock = clock
        self.on_return = on_return
        self._left: dict[Key, LeftKernel] = {}
        self._to_end: dict[Key, LeftKernel] = {}  # by VSCodeSession.lasting_key
        self._current: dict[Key, VSCodeSession] = {}
        self._unknown: set[VSCodeSession] = set()
        self._ended = asyncio.Event()

    def use(self, name: str) -> bool:
        """Return whether VS Code has, or had, a kernel of this kernelspec here."""
        return any(key[1] == name for key in (*self._current, *self._left, *self._to_end))

    def begin(self, session: VSCodeSession) -> None:
        """The session's launcher has started a kernel. As a rule the notebook is not known yet."""
        if session.title:
            self._current[session.key] = session
            return
        self._unknown.add(session)
        for key, left in self._left.items():
            if key[:2] == session.window and _is_restart(left, session):
                session.suspect(left)

    def restarted_on(self, window: tuple[int, str], age: float) -> str:
        """Return the host of the kernel that a launcher of this window and kernelspec, started `age` seconds ago, may
        restart; "" if none."""
        started = self.clock() - age
        left = [
            one
            for key, one in self._left.items()
            if key[:2] == window and started - one.time < RESTART_WINDOW
        ]
        return max(left, key=lambda one: one.time).link.name if left else ""

    def identified(self, session: VSCodeSession) -> tuple[VSCodeSession | None, LeftKernel | None]:
        """The session's notebook is known. Return the session that has it still, and the kernel that was left, if this
        is a restart of one of them."""
        self._unknown.discard(session)
        overlaps = self._current.get(session.key)
        self._current[session.key] = session
        left = self._left.pop(session.key, None)
        left = left if left is not None and _is_restart(left, session) else None
        left = left or self._to_end.get(session.lasting_key)
        return overlaps, left

    def renamed(self, session: VSCodeSession, title: str) -> None:
        """The session's notebook, which was not saved before, is a file now."""
        if self._current.get(session.key) is session:
            del self._current[session.key]
        left = self._to_end.pop(session.lasting_key, None)
        session.title = title
        self._current[session.key] = session
        if left is not None:
            self.end_later(session, left)

    def end_later(self, session: VSCodeSession, left: LeftKernel) -> None:
        """The session is a restart of this kernel, which is to be ended, by a session to come if not by this one."""
        _put(self._to_end, session.lasting_key, left)

    def ended(self, session: VSCodeSession) -> None:
        """The kernel of `end_later` has been ended."""
        self._to_end.pop(session.lasting_key, None)

    async def left_elsewhere(self, session: VSCodeSession) -> None:
        """Return when no other window has this notebook, or after a moment, as one of them may have gone."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LEAVING
        while any(key[1:] == session.key[1:] and key != session.key for key in self._current):
            self._ended.clear()
            try:
                await asyncio.wait_for(self._ended.wait(), deadline - loop.time())
            except asyncio.TimeoutError:
                return

    def end(self, session: VSCodeSession, remote: RemoteKernel) -> None:
        """A session ends. Its kernel lives on, unless this was a restart and the next session is here already."""
        self._unknown.discard(session)
        session.clear_suspects()
        if not session.title:
            return
        left = LeftKernel(remote.kernel_id, remote.link, self.clock(), tuple(remote.displays.ids))
        current = self._current.get(session.key, session)
        if current is not session:
            return current.replace_later(left)
        self._current.pop(session.key, None)
        self._ended.set()
        _put(self._left, session.key, left)
        for other in self._unknown:
            if other.window == session.window and left.time - other.started < RESTART_WINDOW:
                other.suspect(left)


def _is_restart(left: LeftKernel, session: VSCodeSession) -> bool:
    """Return whether the session, of the same notebook, is a restart. It may have started before that end."""
    return session.started - left.time < RESTART_WINDOW


def _put(kernels: dict[Key, LeftKernel], key: Key, left: LeftKernel) -> None:
    kernels.pop(key, None)
    kernels[key] = left
    if len(kernels) > _MAX_LEFT:
        del kernels[next(iter(kernels))]


class VSCodeSession:
    """One launcher that did not tell its notebook. `observe` gets its requests before the kernel does.

    `from_vs_code`: whether a request was seen that only VS Code sends.
    """

    def __init__(
        self,
        sessions: VSCodeSessions,
        parent: int,
        name: str,
        notebook: str = "",
        used: bool = False,
        age: float = 0.0,
    ) -> None:
        """`parent`: the window's process; `name`: the kernelspec; `notebook`: if it is known from a hub before this
        one; `used`: whether a cell may have been run already; `age`: the seconds since the front end's start of the
        launcher."""
        self.title = notebook
        """The notebook as VS Code calls it: a path, or the name of an unsaved one; "" while it is not known."""
        self.window = parent, name
        self.started = sessions.clock() - age
        self.from_vs_code = False
        self.expected = sessions.use(name)
        """Whether this may be a restart or a return, rather than VS Code's first kernel of this kernelspec."""
        self._sessions = sessions
        self._used = used
        self._remote: RemoteKernel | None = None
        self._suspects: list[LeftKernel] = []
        self._tasks = BackgroundTasks()

    @property
    def key(self) -> Key:
        """The window's process, the kernelspec, the notebook."""
        return (*self.window, self.title)

    @property
    def lasting_key(self) -> Key:
        """The same for a notebook that can be recognised in another window: with 0 for the process."""
        return (0, self._name, self.title) if self.notebook else self.key

    @property
    def notebook(self) -> str:
        """The notebook's path; "" while it is not known, or not saved."""
        return self.title if is_file(self.title) else ""

    def observe(self, remote: RemoteKernel, request: Message) -> None:
        """Take note of a request on the shell channel."""
        title = "" if self.notebook else title_of(request)
        self.from_vs_code = self.from_vs_code or bool(title)
        if title and not self.title:
            self.title, self._remote = title, remote
            remote.hold()
            self._tasks.spawn(self._identified(remote, self._used))
        elif is_file(title):
            self._sessions.renamed(self, title)
            remote.set_notebook(title)
        self._used = self._used or is_user_cell(request)

    def suspect(self, left: LeftKernel) -> None:
        """This session may be the restart of that kernel: pause it until that is known."""
        self._suspects.append(left)
        self._tasks.spawn(_request_once(left, "pause"))

    def clear_suspects(self) -> None:
        """This session is no restart of the suspected kernels: let them run."""
        suspects, self._suspects = self._suspects, []
        for left in suspects:
            self._tasks.spawn(_request_once(left, "resume"))

    def replace_later(self, left: LeftKernel) -> None:
        """The session before, in the same window, overlapped with this one, and has ended only now."""
        if self._remote is not None:
            self._remote.hold()
            self._tasks.spawn(self._replace_overlapping(self._remote, left))

    async def _identified(self, remote: RemoteKernel, used: bool) -> None:
        """The notebook is known: decide which kernel it gets. `used`: the user has variables in the new one."""
        try:
            overlapped, before = self._sessions.identified(self)
            self._suspects = [left for left in self._suspects if left != before]
            self.clear_suspects()
            if before is not None:
                await self._replace(remote, before)
            elif overlapped is not None:  # `replace_later` ends its kernel
                overlapped.hand_over(remote)
            elif self.notebook and not used:
                await self._return(remote)
            if self.notebook:
                remote.set_notebook(self.notebook)
        finally:
            remote.resume()

    async def _replace_overlapping(self, remote: RemoteKernel, before: LeftKernel) -> None:
        try:
            await self._replace(remote, before)
        finally:
            remote.resume()

    async def _return(self, remote: RemoteKernel) -> None:
        """Give the front end the kernel that its notebook left, if there is one, and end the new one."""
        await self._sessions.left_elsewhere(self)
        self._sessions.on_return(self._name, self.notebook)
        wanted: dict[str, Any] = {"name": self._name, "notebook": self.notebook, **remote.owner}
        wanted["here"] = remote.link.kernel_ids
        left = (await self._request(remote, remote.link, "left", **wanted) or {}).get("kernel")
        fresh, link, find = remote.kernel_id, remote.link, self._sessions.find_elsewhere
        if left and len(remote.front_ends):  # else the front end has left meanwhile
            remote.switch(str(left))
        elif left or find is None or not await find(remote, wanted):
            return
        why = "its notebook has another kernel"
        await self._request(remote, link, "stop", kernel=fresh, why=why)

    def hand_over(self, remote: RemoteKernel) -> None:
        """Another session restarts this one's kernel by `remote`, which begins in the same job, if there is one."""

        async def later() -> None:
            """`replace_later` ends the kernel."""

        if self._remote is not None:
            remote.late_start.replace(self._remote.kernel_id, later)

    async def _replace(self, remote: RemoteKernel, before: LeftKernel) -> None:
        """End the kernel before; the new one gets its GPUs, or its job."""
        remote.displays.inherit(before.displays)
        stop = partial(self._stop, remote, before)
        if not remote.late_start.replace(before.kernel_id, stop):
            await stop()

    async def _stop(self, remote: RemoteKernel, before: LeftKernel) -> None:
        why = "restarted by its front end, with a new kernel"
        more = {"kernel": before.kernel_id, "replaced_by": remote.kernel_id}
        self._sessions.end_later(self, before)
        if await self._request(remote, before.link, "stop", why=why, **more) is not None:
            self._sessions.ended(self)

    async def _request(
        self, remote: RemoteKernel, link: NodeLink, do: str, **more: Any
    ) -> dict[str, Any] | None:
        """Return the agent's answer, also where the link is down for a while; {} if the agent refuses. None if it
        cannot be asked, or if the front end has left: what the user wants to stop is stopped also then."""
        for _ in range(_MAX_TRIES):
            if do != "stop" and not len(remote.front_ends):
                break
            try:
                return await link.request(do, **more)
            except AgentRefusal:  # the kernel has ended by itself
                return {}
            except GpuKernelError:
                if link is not remote.link:  # the kernelspec leads to another node now
                    return None
                await _until_attached(remote)
            gone = remote.closed or remote.link_state in (LinkState.LOST, LinkState.TAKEN)
            if gone and link.state != "up":
                return None
        return None

    @property
    def _name(self) -> str:
        return self.window[1]


async def _until_attached(remote: RemoteKernel) -> None:
    """Return when the link carries the kernel (again), or never will."""
    changed = asyncio.Event()
    settled = (LinkState.UP, LinkState.LOST, LinkState.TAKEN)
    with remote.watched(changed.set):
        while remote.link_state not in settled and not remote.closed:
            changed.clear()
            await changed.wait()


async def _request_once(left: LeftKernel, do: str) -> None:
    """Do not repeat the request after a drop: by then it is known what the user meant."""
    with contextlib.suppress(GpuKernelError):
        await left.link.request(do, kernel=left.kernel_id)
