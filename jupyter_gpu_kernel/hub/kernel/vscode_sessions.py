"""VS Code's way: a new launcher with a new key for every start, and only its messages tell for which notebook.

So a visit begins with a new kernel. Once the notebook is known, that kernel is the notebook's, or the front end is
given the kernel that this notebook left. If the launcher before it, of the same window, kernelspec and notebook, left
at most RESTART_WITHIN seconds before this one started, it was a restart: the new kernel stays, and the old one is
ended and hands its GPUs over. A Python on a slow file system tells its notebook only after many seconds; until then
kernels that may be meant are paused.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ...errors import GpuKernelError
from ...wire.compose import is_user_cell
from ...wire.messages import Message
from ..node.agent_errors import AgentRefusal
from ..node.link import Link
from .remote_kernel import RemoteKernel
from .startup import until_attached
from .vscode_notebooks import from_vs_code, notebook_of

RESTART_WITHIN = 5.0
"""Seconds after which somebody who left a notebook's kernel and comes again does not mean a restart."""
Key = tuple[int, str, str]


class Left(NamedTuple):
    """A kernel that a visit had. `time`: of time.monotonic()."""

    kernel_id: str
    link: Link
    time: float


class VSCodeSessions:
    """All visits of this hub: who left which kernel when.

    `on_return(name, notebook)` is called when a notebook is about to be given the kernel it left.
    """

    def __init__(
        self,
        on_return: Callable[[str, str], None] = lambda name, notebook: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_return = on_return
        self.now = now
        self._left: dict[Key, Left] = {}
        self._here: dict[Key, VSCodeSession] = {}
        self._unknown: set[VSCodeSession] = set()

    def came(self, vscode_session: VSCodeSession) -> None:
        """A launcher has started; as a rule it is not known yet for which notebook."""
        if vscode_session.notebook:
            self._here[vscode_session.key] = vscode_session
            return
        self._unknown.add(vscode_session)
        for key, left in self._left.items():
            if key[:2] == vscode_session.window and _restarts(left, vscode_session):
                vscode_session.suspects(left)

    def known(self, vscode_session: VSCodeSession) -> tuple[bool, Left | None]:
        """It has told its notebook. Whether it is a restart, and of which kernel, if that has been left by now."""
        self._unknown.discard(vscode_session)
        overlaps = vscode_session.key in self._here
        self._here[vscode_session.key] = vscode_session
        left = self._left.pop(vscode_session.key, None)
        left = left if left is not None and _restarts(left, vscode_session) else None
        return overlaps or left is not None, left

    def left(self, vscode_session: VSCodeSession, remote: RemoteKernel) -> None:
        """A visit ends; its kernel lives on, unless it was a restart and the next one is here already."""
        self._unknown.discard(vscode_session)
        vscode_session.acquits()
        if not vscode_session.notebook:
            return
        left = Left(remote.kernel_id, remote.link, self.now())
        here = self._here.get(vscode_session.key, vscode_session)
        if here is not vscode_session:
            return here.follows(left)
        self._here.pop(vscode_session.key, None)
        self._left[vscode_session.key] = left
        for other in self._unknown:
            if other.window == vscode_session.window and left.time - other.started < RESTART_WITHIN:
                other.suspects(left)


def _restarts(left: Left, vscode_session: VSCodeSession) -> bool:
    """Whether the visit, of the same notebook, is a restart. It may have started before the other one left."""
    return vscode_session.started - left.time < RESTART_WITHIN


class VSCodeSession:
    """One front end that did not say its notebook. `saw` sees its requests before they go to the kernel.

    `from_vs_code`: it did say something that only VS Code says.
    """

    def __init__(
        self, visits: VSCodeSessions, parent: int, name: str, notebook: str = "", used: bool = False
    ) -> None:
        """`notebook`: if it is known from a hub before this one; `used`: whether a cell may have been run already."""
        self.notebook = notebook
        self.window = parent, name
        self.started = visits.now()
        self.from_vs_code = False
        self._visits = visits
        self._used = used
        self._remote: RemoteKernel | None = None
        self._suspects: list[Left] = []
        self._tasks: set[asyncio.Task[None]] = set()
        visits.came(self)

    @property
    def key(self) -> Key:
        """The window's process, the kernelspec, the notebook."""
        return (*self.window, self.notebook)

    def saw(self, remote: RemoteKernel, message: Message) -> None:
        """A request on the shell channel."""
        self.from_vs_code = self.from_vs_code or from_vs_code(message)
        if not self.notebook:
            self.notebook = notebook_of(message)
            if self.notebook:
                remote.hold()
                self._remote = remote
                self._spawn(self._known(remote, self._used))
        self._used = self._used or is_user_cell(message)

    def suspects(self, left: Left) -> None:
        """It may be the restart of this kernel, which is paused until that is known."""
        self._suspects.append(left)
        self._spawn(_ask_once(left, "pause"))

    def acquits(self) -> None:
        """It is no restart of those kernels."""
        suspects, self._suspects = self._suspects, []
        for left in suspects:
            self._spawn(_ask_once(left, "resume"))

    def follows(self, left: Left) -> None:
        """The one before, in the same window, overlapped: it has left only now."""
        if self._remote is not None:
            self._remote.hold()
            self._spawn(self._follow(self._remote, left))

    async def _known(self, remote: RemoteKernel, used: bool) -> None:
        """The notebook is known: whose kernel is it to have? `used`: its user has variables in the new one."""
        try:
            restart, before = self._visits.known(self)
            self._suspects = [left for left in self._suspects if left != before]
            self.acquits()
            if before is not None:
                await self._replace(remote, before)
            elif not restart and not used:
                await self._return(remote)
            remote.belongs_to(self.notebook)
        finally:
            remote.go_on()

    async def _follow(self, remote: RemoteKernel, before: Left) -> None:
        try:
            await self._replace(remote, before)
        finally:
            remote.go_on()

    async def _return(self, remote: RemoteKernel) -> None:
        self._visits.on_return(self._name, self.notebook)
        wanted: dict[str, Any] = {"name": self._name, "notebook": self.notebook, **remote.owner}
        wanted["here"] = remote.link.kernel_ids
        left = (await self._ask(remote, remote.link, "left", **wanted)).get("kernel")
        if left and len(remote.front_ends):  # else it has left meanwhile
            fresh = remote.kernel_id
            remote.switch(str(left))
            await self._ask(remote, remote.link, "stop", kernel=fresh, why="its notebook has another kernel")

    async def _replace(self, remote: RemoteKernel, before: Left) -> None:
        """The kernel before ends, and the new one has its GPUs."""
        why = "restarted by its front end, with a new kernel"
        more = {"kernel": before.kernel_id, "replaced_by": remote.kernel_id}
        await self._ask(remote, before.link, "stop", why=why, **more)

    async def _ask(self, remote: RemoteKernel, link: Link, do: str, **more: Any) -> dict[str, Any]:
        """The agent's answer, also where the link is down for a while; {} if it refuses or the front end has left."""
        while len(remote.front_ends) and remote.link_state not in ("lost", "taken"):
            try:
                return await link.request(do, **more)
            except AgentRefusal:  # it has ended by itself
                return {}
            except GpuKernelError:
                if link is not remote.link:  # the kernelspec leads to another node now
                    return {}
                await until_attached(remote)
        return {}

    @property
    def _name(self) -> str:
        return self.window[1]

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)


async def _ask_once(left: Left, do: str) -> None:
    """Not again after a drop: by then it is known what the user meant."""
    with contextlib.suppress(GpuKernelError):
        await left.link.request(do, kernel=left.kernel_id)
