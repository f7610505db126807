"""What starts a kernel with a cell of its user, whether the kernel then runs in a job or on one of several hosts.

A kernel that does not exist any more is started again by the next cell. This module does not know where kernels run.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from ...errors import GpuKernelError, HubError
from ...wire.runtime import Runtime
from ..background import BackgroundTasks
from ..kernel.remote_kernel import RemoteKernel
from ..kernel_settings import KernelSettings
from ..node.nodes import Nodes
from ..rpc import REPORT_BUG, Call


class KernelStarter(ABC):
    """The `Starter` of one kernel. A subclass says how it is started."""

    def __init__(self, runtime: Runtime, nodes: Nodes, log: logging.Logger) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._log = log
        self._changed = asyncio.Event()
        self._remote: RemoteKernel | None = None
        self._lost: GpuKernelError | None = None
        self._stop_replaced: Callable[[], Awaitable[None]] | None = None
        self._tasks = BackgroundTasks()

    @abstractmethod
    async def prepare(self, call: Call, login_wait: float, restarted_on: str) -> KernelSettings:
        """A front end wants the kernel: sign in, and return the kernel's settings. They lead to a node if the kernel is
        to be used there at once. `restarted_on`: the host of the kernel that this one may replace."""

    def begin(self, remote: RemoteKernel, *, adopted: bool) -> None:
        """Start this kernel as often as its user runs a cell and it does not exist, until the hub has left it.

        `adopted`: a hub that was killed had the kernel before."""
        self._remote = remote
        self._tasks.spawn(self._run(remote, adopted))

    async def _run(self, remote: RemoteKernel, adopted: bool) -> None:
        """Return when the hub has left the kernel."""
        with remote.watched(self._changed.set):
            while not remote.closed:
                self._lost = None
                try:
                    await self._live(remote)
                except GpuKernelError as error:
                    self._fail(remote, error)
                except Exception as error:  # a bug of ours
                    self._log.exception("kernel %s: its start failed", remote.kernel_id)
                    self._fail(remote, HubError(f"{type(error).__name__}: {error}", remedy=REPORT_BUG))
                await self._end_replaced()

    @abstractmethod
    async def _live(self, remote: RemoteKernel) -> None:
        """Start the kernel when a cell waits; return when it does not exist any more. Raise why it cannot be
        started."""

    # -------------------------------------------------------------------------------------- calls of the kernel

    def cell_waits(self) -> None:
        """Note that a cell of the user waits for the kernel."""
        self._changed.set()

    def interrupted(self) -> None:
        """Note that the user has interrupted the kernel: no cell waits any more."""
        self._changed.set()

    def restart(self) -> None:
        """Prepare for another kernel, as the kernel does not exist any more: the next cell starts one."""
        if self._remote is not None:
            self._undo(self._remote)

    @abstractmethod
    def replace(self, kernel_id: str, settings: KernelSettings, stop: Callable[[], Awaitable[None]]) -> bool:
        """Start the kernel where the kernel `kernel_id` with these settings is, which it replaces; then call `stop`.
        Return False if the kernel cannot start there."""

    @abstractmethod
    def lost(self, error: GpuKernelError) -> bool:
        """Note that the kernel's keeper does not exist any more. Return whether the starter reports that."""

    @abstractmethod
    async def find_left(self, notebook: str) -> bool:
        """The notebook is known now. Return whether the kernel that it has left elsewhere is used."""

    async def host_lost(self) -> bool:
        """Return whether a kernel that is restarted has to start elsewhere."""
        return False

    def reservations(self) -> list[str]:
        """Return the ids of the keepers that wait for GPUs for this kernel."""
        return []

    async def set_priority(self, priority: int) -> None:
        """The kernel, which has not been started, has another priority."""
        if self._remote is not None:
            self._remote.settings = self._remote.settings.replace(priority=priority)
            self._remote.show_status(priority=priority)

    # -------------------------------------------------------------------------------------- helpers

    async def _end_replaced(self) -> None:
        stop, self._stop_replaced = self._stop_replaced, None
        if stop is not None:
            await stop()

    async def _give_up(self, remote: RemoteKernel) -> None:
        """Prepare for another start, as this one is not wanted any more. After a shutdown do so only when a cell waits
        again, or the front end restarts the kernel."""
        await self._until(lambda: not remote.end_wanted or remote.late_start.wanted)
        if not remote.closed:
            self._undo(remote)

    def _undo(self, remote: RemoteKernel) -> None:
        """Return to the state without a kernel: the next cell starts one, with another id."""
        settings = remote.settings.before_start()
        no_link = self._nodes.no_link(settings)
        assert no_link is not None  # else the kernel would have no starter
        remote.late_start.undo(no_link, settings, self._runtime.new_id()[:12])
        self._changed.set()

    def _fail(self, remote: RemoteKernel, error: GpuKernelError) -> None:
        """End the cells that wait with the error, as the kernel cannot be started."""
        remote.late_start.failed(error)
        if not remote.closed:
            self._undo(remote)

    async def _until(self, condition: Callable[[], bool], within: float | None = None) -> None:
        """Return when the condition holds, the hub does not have the kernel any more, or the time is over."""
        deadline = None if within is None else asyncio.get_running_loop().time() + within
        while not condition() and self._remote is not None and not self._remote.closed:
            if not await self._next_change(deadline):
                return

    async def _next_change(self, deadline: float | None = None) -> bool:
        """Return when something has changed; False at the deadline, by the clock of the event loop."""
        self._changed.clear()
        timeout = None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())
        try:
            await asyncio.wait_for(self._changed.wait(), timeout)
        except asyncio.TimeoutError:
            return False
        return True
