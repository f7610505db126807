"""What starts a kernel with a cell of its user, whether the kernel then runs in a job or on one of several hosts.

Until its start such a kernel is pending: it has no node, and `core/kernel_core.py` says what front ends get. A kernel
that does not exist any more is started again by the next cell. What differs between the two kinds of kernels is in
`jobs/job_starter.py` and `several_hosts/host_starter.py`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import GpuKernelError, HubError
from ...wire.runtime import Runtime
from ..background import BackgroundTasks
from ..kernel_settings import KernelSettings
from ..node.node_link import NodeLink, NoLink
from .core.events import StartFailed, StatusKnown
from .core.life import Phase

if TYPE_CHECKING:
    from .remote_kernel import RemoteKernel


class LeftKernel(NamedTuple):
    """A kernel that its front end has left. `settings` lead to its node."""

    kernel_id: str
    link: NodeLink
    settings: KernelSettings


class Starter(ABC):
    """Starts one kernel, as often as its user needs it. A subclass says how the kernel is started.

    `_lost`: why the kernel's keeper does not exist, once that is known. `_stop_replaced`: ends the kernel that the
    starter's kernel replaces, once the starter's kernel was started or cannot be.
    """

    def __init__(
        self, runtime: Runtime, no_link: Callable[[KernelSettings], NoLink | None], log: logging.Logger
    ) -> None:
        """`no_link(settings)` returns the link of a kernel with these settings that has not been started."""
        self._runtime = runtime
        self._no_link = no_link
        self._log = log
        self._lost: GpuKernelError | None = None
        self._stop_replaced: Callable[[], Awaitable[None]] | None = None
        self._tasks = BackgroundTasks()

    @abstractmethod
    async def prepare(self, settings: KernelSettings, call: Any, restarted_on: str) -> KernelSettings:
        """A front end wants a kernel with these settings: sign in, and return the settings. They lead to a node if the
        kernel is to be used there at once. `restarted_on`: the host of the kernel that the new kernel may replace."""

    def begin(self, remote: RemoteKernel, *, adopted: bool) -> None:
        """From now on start the kernel whenever its user runs a cell and the kernel does not exist, until the hub gives
        the kernel up. `adopted`: whether a hub that was killed had the kernel before."""
        self._tasks.spawn(self._run(remote, adopted))

    async def _run(self, remote: RemoteKernel, adopted: bool) -> None:
        """Return when the hub has given up the kernel."""
        await remote.attach_timing.begun.wait()
        while not remote.closed:
            self._lost = None
            try:
                await self._live(remote)
            except GpuKernelError as error:
                self._fail(remote, error)
            except Exception as error:  # a bug of ours
                self._log.exception("kernel %s: its start failed", remote.kernel_id)
                self._fail(remote, HubError.from_bug(error))
            await self._end_replaced()

    async def _live(self, remote: RemoteKernel) -> None:
        """Start the kernel when a cell waits, or when a place for the kernel is known; return when the kernel does not
        exist any more. Raise the reason if the kernel cannot be started."""
        await remote.until(lambda: not remote.not_started or remote.start_wanted or self._knows_place)
        if (remote.not_started and not remote.closed) or remote.must_be_found:
            await self._start(remote)
        if not (remote.not_started or remote.closed):
            await self._serve(remote)

    @property
    @abstractmethod
    def _knows_place(self) -> bool:
        """Whether there may be a place where the kernel is to start without a cell that waits."""

    @abstractmethod
    async def _start(self, remote: RemoteKernel) -> None:
        """Start the kernel once, or find the kernel that a killed hub has used, or end that one if it cannot be found.
        Raise the reason if the start fails; return without a kernel if the start is not wanted any more."""

    async def _serve(self, remote: RemoteKernel) -> None:
        """Return when the kernel, which was started, does not exist any more and the next cell may start another
        one."""
        await remote.until(lambda: remote.not_started)

    # -------------------------------------------------------------------------------------- calls of the kernel

    def interrupted(self) -> None:
        """The user has interrupted the kernel, which has not been started: no cell waits any more."""
        return None

    def lost(self, remote: RemoteKernel, error: GpuKernelError) -> bool:
        """The kernel's keeper does not exist any more, or could not be started. Return whether the starter handles
        this; it then calls reports `StartFailed`, or calls `RemoteKernel.end`, a moment later."""
        self._lost = error
        remote.wake()
        return remote.not_started

    def restart(self, remote: RemoteKernel) -> None:
        """The kernel does not exist any more, or only on a host that is lost: the next cell starts another one."""
        self._undo(remote)

    @abstractmethod
    def replace(self, remote: RemoteKernel, left: LeftKernel, stop: Callable[[], Awaitable[None]]) -> bool:
        """The front end has replaced the kernel `left` by `remote`. Return whether `remote` will start in the job, or
        on the host, of `left`; then `stop` is called once `remote` has started there or has failed to. If False is
        returned, the starter never calls `stop`."""

    @abstractmethod
    async def find_left(self, remote: RemoteKernel, notebook: str) -> bool:
        """The notebook is known now. Return whether the kernel that the notebook has left elsewhere is used."""

    async def host_lost(self, remote: RemoteKernel) -> bool:
        """Return whether a kernel that is restarted has to start elsewhere."""
        return False

    async def set_priority(self, remote: RemoteKernel, priority: int) -> None:
        """Give the kernel, which has not been started, another priority."""
        remote.settings = remote.settings.replace(priority=priority)
        remote.report(StatusKnown({"priority": priority}))

    # -------------------------------------------------------------------------------------- for subclasses

    def _show_waiting(self, remote: RemoteKernel) -> None:
        """A cell waits for the start from now on."""
        remote.report(StatusKnown({"state": "waiting", "since": self._runtime.time()}, wanted=True))

    async def _start_on(
        self, remote: RemoteKernel, link: NodeLink, settings: KernelSettings, within: float | None = None
    ) -> bool:
        """Start the kernel on the node of the link. Return whether the kernel can be used; if not, `_lost` is the
        reason, unless the start is not wanted any more, or has taken more than `within` seconds."""
        remote.start_on(link, settings)

        def settled() -> bool:
            return not remote.not_started or self._lost is not None or not self._wanted(remote)

        await remote.until(settled, within)
        await self._end_replaced()
        return not remote.not_started

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
        await remote.until(lambda: remote.phase is Phase.RUN or remote.start_wanted)
        if not remote.closed:
            self._undo(remote)

    def _undo(self, remote: RemoteKernel) -> None:
        """Return to the state without a kernel: the next cell starts one, with another id."""
        settings = remote.settings.before_start()
        no_link = self._no_link(settings)
        assert no_link is not None  # else the kernel would have no starter
        remote.undo_start(no_link, settings, self._runtime.new_id()[:12])

    def _fail(self, remote: RemoteKernel, error: GpuKernelError) -> None:
        """End the cells that wait with the error, as the kernel cannot be started, or found."""
        if not (remote.not_started or remote.closed):
            return remote.end(error)
        remote.report(StartFailed(error))
        if not remote.closed:
            self._undo(remote)
