"""VS Code's way: a new launcher with a new key for every start, and only its messages tell for which notebook.

So a visit begins with a new kernel. Once the notebook is known it is the kernel's; or the front end is given the
kernel that this notebook left; or, where the one before left just now in the same window, it was a restart: then
the new kernel stays, and the old one ends when the new one runs its first cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import GpuKernelError
from ..wire.jupyter import is_user_cell
from ..wire.messages import Message
from .notebooks import notebook_of

if TYPE_CHECKING:
    from .kernels import RemoteKernel

RESTART_WITHIN = 5.0
"""Seconds after which somebody who left a notebook's kernel and comes again does not mean a restart."""


class Left(NamedTuple):
    """A kernel that a visit had."""

    kernel_id: str
    time: float


class Visits:
    """All visits of this hub: who left which kernel when.

    `on_return(name, notebook)` is called when a notebook is about to be given the kernel it left.
    """

    def __init__(self, on_return: Callable[[str, str], None] = lambda name, notebook: None) -> None:
        self.on_return = on_return
        self._left: dict[tuple[int, str, str], Left] = {}
        self._here: dict[tuple[int, str, str], Visit] = {}

    def came(self, visit: Visit) -> None:
        """A visit has told its notebook."""
        self._here[visit.key] = visit

    def left(self, visit: Visit, remote: RemoteKernel) -> None:
        """A visit ends; its kernel lives on, unless it was a restart and the next one is here already."""
        if not visit.notebook:
            return
        here = self._here.get(visit.key, visit)
        if here is visit:
            self._here.pop(visit.key, None)
            self._left[visit.key] = Left(remote.kernel_id, time.monotonic())
        else:
            here.follows(remote.kernel_id)

    def before(self, visit: Visit) -> str:
        """The kernel that the same window had for the same notebook a moment ago: this is a restart. Or ""."""
        left = self._left.pop(visit.key, None)
        return left.kernel_id if left and time.monotonic() - left.time < RESTART_WITHIN else ""


class Visit:
    """One front end that did not say its notebook. `saw` sees its requests before they go to the kernel."""

    def __init__(self, visits: Visits, parent: int, name: str) -> None:
        self.notebook = ""
        self._visits = visits
        self._parent = parent
        self._name = name
        self._before = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def key(self) -> tuple[int, str, str]:
        """The window, the kernelspec, the notebook."""
        return self._parent, self._name, self.notebook

    def saw(self, remote: RemoteKernel, message: Message) -> None:
        """A request on the shell channel."""
        if not self.notebook:
            self.notebook = notebook_of(message)
            if self.notebook:
                remote.hold()
                self._spawn(self._known(remote))
        elif self._before and b"execute_request" in message.parts[0] and is_user_cell(message.content()):
            before, self._before = self._before, ""
            remote.hold()
            self._spawn(self._end_the_one_before(remote, before))

    def follows(self, before: str) -> None:
        """The one before, in the same window, overlapped: it has left only now."""
        self._before = before

    async def _known(self, remote: RemoteKernel) -> None:
        """The notebook is known: whose kernel is it to have?"""
        self._visits.came(self)
        try:
            self._before = self._visits.before(self)
            with contextlib.suppress(GpuKernelError):  # the link is down: then it keeps the new kernel
                if not self._before:
                    await self._return(remote)
            remote.belongs_to(self.notebook)
        finally:
            remote.go_on()

    async def _return(self, remote: RemoteKernel) -> None:
        self._visits.on_return(self._name, self.notebook)
        wanted: dict[str, Any] = {"name": self._name, "notebook": self.notebook, **remote.owner}
        answer = await remote.link.request("left", **wanted)
        left = answer.get("kernel")
        if left and left != self._before and len(remote.fronts):  # else it has left meanwhile
            fresh = remote.kernel_id
            remote.switch(str(left))
            await remote.link.request("stop", kernel=fresh, why="its notebook has another kernel")

    async def _end_the_one_before(self, remote: RemoteKernel, before: str) -> None:
        """Its GPUs are free then, for the new one."""
        with contextlib.suppress(GpuKernelError):  # it has ended by itself
            await remote.link.request("stop", kernel=before, why="restarted in VS Code")
        remote.go_on()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)
