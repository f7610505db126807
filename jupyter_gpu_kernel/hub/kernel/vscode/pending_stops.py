"""Kernels that VS Code has replaced by others, and that end as soon as their nodes can be reached.

VS Code restarts a kernel by another launcher. If the node cannot be reached then, the old kernel still runs there, with
its GPUs. Each such kernel is remembered until its agent has answered, whatever becomes of the new kernel and of the
window. This module does not decide what a restart is.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from ....errors import GpuKernelError
from ...background import BackgroundTasks
from ...node.node_link import stop_kernel
from ..core.life import LinkState
from ..remote_kernel import RemoteKernel
from ..starter import LeftKernel

_RESTARTED = "restarted by its front end, with a new kernel"
_RETURNED = "its notebook has another kernel"
Key = tuple[int, str, str]
"""The window's process, the kernelspec, the notebook. The process is 0 if the notebook is a file, which other windows
can open, too."""
_KEEPS_HUB = 3600.0
"""Seconds for which a node that cannot be reached keeps the hub from ending."""
_NO_NOTEBOOK: Key = (0, "", "")


@dataclass
class PendingStop:
    """A kernel that is to end. `replaced_by`: the id of the kernel that gets its GPUs, "" if no kernel gets them."""

    left: LeftKernel
    key: Key
    replaced_by: str = ""
    why: str = _RESTARTED
    replacement: RemoteKernel | None = None
    """The kernel that gets the GPUs, if it is on the same node. Its keeper must exist before it can get them."""
    task: asyncio.Task[None] | None = None
    keeps_hub_until: float = 0.0
    """By the event loop's clock."""


class PendingStops:
    """All kernels that are to end. True while there is one whose node has not answered yet, for an hour at most."""

    def __init__(self, owner: str = "") -> None:
        """`owner`: the id of this user and computer, see `paths.owner`."""
        self._owner = owner
        self._stops: dict[str, PendingStop] = {}
        self._tasks = BackgroundTasks()

    def __bool__(self) -> bool:
        pending = ((one.task, one.keeps_hub_until) for one in self._stops.values() if one.task is not None)
        return any(not task.done() and task.get_loop().time() < until for task, until in pending)

    def names(self) -> set[str]:
        """Return the kernelspecs of the kernels."""
        return {one.key[1] for one in self._stops.values()}

    def of(self, key: Key) -> list[PendingStop]:
        """Return the kernels that this notebook had, oldest first."""
        return [one for one in self._stops.values() if one.key == key]

    def add(self, left: LeftKernel, key: Key, replacement: RemoteKernel | None) -> PendingStop:
        """From now on the kernel is to end. `replacement` gets its GPUs."""
        stop = self._stops.get(left.kernel_id)
        if stop is None or stop.task is None or stop.task.done():
            stop = PendingStop(left, key)
            self._begin(stop)
        self.replace(stop, replacement)
        return stop

    def add_fresh(self, left: LeftKernel) -> None:
        """From now on a kernel is to end that no notebook has used."""
        self._begin(PendingStop(left, _NO_NOTEBOOK, why=_RETURNED))

    def _begin(self, stop: PendingStop) -> None:
        self._stops[stop.left.kernel_id] = stop
        stop.keeps_hub_until = asyncio.get_running_loop().time() + _KEEPS_HUB
        stop.task = self._tasks.spawn(self._run(stop))

    def replace(self, stop: PendingStop, replacement: RemoteKernel | None) -> None:
        """The notebook has yet another kernel, which gets the GPUs."""
        stop.replaced_by = replacement.kernel_id if replacement is not None else ""
        same_node = replacement is not None and replacement.link is stop.left.link
        stop.replacement = replacement if same_node else None

    def rename(self, before: Key, after: Key) -> None:
        """The notebook has another name now."""
        for stop in self.of(before):
            stop.key = after

    async def done(self, stop: PendingStop, remote: RemoteKernel) -> None:
        """Return when the kernel has ended, before `remote` runs a cell; at once if `remote` is on another node."""
        if stop.task is not None and stop.left.link is remote.link:
            await asyncio.wait([stop.task])

    async def _run(self, stop: PendingStop) -> None:
        link, kernel_id = stop.left.link, stop.left.kernel_id
        with contextlib.suppress(GpuKernelError):  # the link was closed
            while kernel_id in self._stops:
                await link.until_up()
                if stop.replacement is not None:
                    await until_settled(stop.replacement)
                more = {"owner": self._owner, "replaced_by": stop.replaced_by}
                if await stop_kernel(link, kernel_id, stop.why, **more):
                    self._stops.pop(kernel_id, None)


async def until_settled(remote: RemoteKernel) -> None:
    """Return when the link carries the kernel, or when it is known that it never will."""
    await remote.until(lambda: remote.link_state in (LinkState.UP, LinkState.LOST, LinkState.TAKEN))
