"""What starts a kernel with a cell of its user, whether the kernel then runs in a job or on one of several hosts.

A kernel that does not exist any more is started again by the next cell. This module does not know where kernels run.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from ...errors import GpuKernelError, HubError
from ...wire.runtime import Runtime
from ..background import BackgroundTasks
from ..kernel.description import Starter
from ..kernel.remote_kernel import RemoteKernel
from ..kernel.states import Phase
from ..kernel_settings import KernelSettings
from ..node.node_link import NodeLink
from ..node.nodes import Nodes
from ..rpc import REPORT_BUG


class KernelStarter(Starter, ABC):
    """The `Starter` of one kernel. A subclass says how it is started.

    `_lost`: why the kernel's keeper does not exist, once that is known. `_stop_replaced`: ends the kernel that this one
    replaces, when this one was started or cannot be.
    """

    def __init__(self, runtime: Runtime, nodes: Nodes, log: logging.Logger) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._log = log
        self._lost: GpuKernelError | None = None
        self._stop_replaced: Callable[[], Awaitable[None]] | None = None
        self._tasks = BackgroundTasks()

    def begin(self, remote: RemoteKernel, *, adopted: bool) -> None:
        """Start the kernel whenever its user runs a cell and the kernel does not exist, until the hub gives it up."""
        self._tasks.spawn(self._run(remote, adopted))

    async def _run(self, remote: RemoteKernel, adopted: bool) -> None:
        """Return when the hub has given up the kernel."""
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

    async def _live(self, remote: RemoteKernel) -> None:
        """Start the kernel when a cell waits, or when a place for the kernel is known; return when the kernel does not
        exist any more. Raise the reason if the kernel cannot be started."""
        late_start = remote.late_start
        await remote.until(lambda: not late_start.pending or late_start.wanted or self._knows_place)
        if late_start.pending and not remote.closed:
            await self._start(remote)
        if not (late_start.pending or remote.closed):
            await self._serve(remote)

    @property
    @abstractmethod
    def _knows_place(self) -> bool:
        """Whether there may be a place where the kernel is to start without a cell that waits."""

    @abstractmethod
    async def _start(self, remote: RemoteKernel) -> None:
        """Start the kernel once. Raise the reason if that fails; return without a kernel if the start is not wanted any
        more."""

    async def _serve(self, remote: RemoteKernel) -> None:
        """Return when the kernel, which was started, does not exist any more and the next cell may start another
        one."""
        await remote.until(lambda: remote.late_start.pending)

    # -------------------------------------------------------------------------------------- calls of the kernel

    def lost(self, remote: RemoteKernel, error: GpuKernelError) -> bool:
        """Note why the kernel's keeper does not exist; return whether this was a start, which goes on without it."""
        self._lost = error
        remote.wake()
        return remote.late_start.pending

    def restart(self, remote: RemoteKernel) -> None:
        """Prepare for another kernel, as the kernel does not exist any more: the next cell starts one."""
        self._undo(remote)

    # -------------------------------------------------------------------------------------- helpers

    def _show_waiting(self, remote: RemoteKernel) -> None:
        """A cell waits for the start from now on."""
        remote.show_wanted(state="waiting", since=self._runtime.time())

    async def _start_on(
        self,
        remote: RemoteKernel,
        link: NodeLink,
        settings: KernelSettings,
        within: float | None = None,
    ) -> bool:
        """Start the kernel on the node of the link. Return whether it can be used; if not, `_lost` is the reason,
        unless the start is not wanted any more, or has taken more than `within` seconds."""
        late_start = remote.late_start
        late_start.start_on(link, settings, remote.kernel_id)

        def settled() -> bool:
            return not late_start.pending or self._lost is not None or not self._wanted(remote)

        await remote.until(settled, within)
        await self._end_replaced()
        return not late_start.pending

    def _wanted(self, remote: RemoteKernel) -> bool:
        """Return whether the start goes on that has begun."""
        return not (remote.closed or remote.end_wanted)

    async def _end_replaced(self) -> None:
        stop, self._stop_replaced = self._stop_replaced, None
        if stop is not None:
            await stop()

    async def _give_up(self, remote: RemoteKernel) -> None:
        """The present start is not wanted any more. Prepare for another one as soon as a cell waits again, or the front
        end has restarted the kernel that it has shut down."""
        await remote.until(lambda: remote.phase is Phase.RUN or remote.late_start.wanted)
        if not remote.closed:
            self._undo(remote)

    def _undo(self, remote: RemoteKernel) -> None:
        """Return to the state without a kernel: the next cell starts one, with another id."""
        settings = remote.settings.before_start()
        no_link = self._nodes.no_link(settings)
        assert no_link is not None  # else the kernel would have no starter
        remote.late_start.undo(no_link, settings, self._runtime.new_id()[:12])

    def _fail(self, remote: RemoteKernel, error: GpuKernelError) -> None:
        """End the cells that wait with the error, as the kernel cannot be started."""
        remote.late_start.failed(error)
        if not remote.closed:
            self._undo(remote)
