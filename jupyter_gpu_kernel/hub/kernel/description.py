"""How a remote kernel is described to clients, what remains known of a kernel after its front end has left, and the
interface of a kernel's starter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...errors import GpuKernelError
from ..kernel_settings import KernelSettings
from ..node.node_link import NodeLink
from .states import LinkState

if TYPE_CHECKING:
    from .remote_kernel import RemoteKernel


class LeftKernel(NamedTuple):
    """A kernel that its front end has left. `settings` lead to its node."""

    kernel_id: str
    link: NodeLink
    settings: KernelSettings


class Starter(Protocol):
    """Starts one kernel when its user runs a cell: see `pending/starter.py`."""

    async def prepare(self, settings: KernelSettings, call: Any, restarted_on: str) -> KernelSettings:
        """A front end wants a kernel with these settings: sign in, and return the settings. They lead to a node if the
        kernel is to be used there at once. `restarted_on`: the host of the kernel that this one may replace."""

    def begin(self, remote: RemoteKernel, *, adopted: bool) -> None:
        """From now on start the kernel whenever its user runs a cell and the kernel does not exist, until the hub gives
        the kernel up.

        `adopted`: a hub that was killed had the kernel before."""

    def interrupted(self) -> None:
        """The user has interrupted the kernel, which has not been started: no cell waits any more."""
        return None

    def restart(self, remote: RemoteKernel) -> None:
        """The kernel does not exist any more, or only on a host that is lost: the next cell starts another one."""

    def replace(self, remote: RemoteKernel, left: LeftKernel, stop: Callable[[], Awaitable[None]]) -> bool:
        """The front end has replaced the kernel `left` by `remote`. Return whether `remote` will start in the job, or
        on the host, of `left`; then `stop` is called once `remote` has started there or has failed to. If False is
        returned, the starter never calls `stop`."""

    def lost(self, remote: RemoteKernel, error: GpuKernelError) -> bool:
        """The kernel's keeper does not exist any more, or could not be started. Return whether the starter handles
        this; it then calls `LateStart.failed` or `RemoteKernel.end` a moment later."""

    async def find_left(self, remote: RemoteKernel, notebook: str) -> bool:
        """The notebook is known now. Return whether the kernel that it has left elsewhere is used."""

    async def host_lost(self, remote: RemoteKernel) -> bool:
        """Return whether a kernel that is restarted has to start elsewhere."""
        return False

    async def set_priority(self, remote: RemoteKernel, priority: int) -> None:
        """Give the kernel, which has not been started, another priority."""
        remote.settings = remote.settings.replace(priority=priority)
        remote.show_status(priority=priority)


def describe(
    settings: KernelSettings,
    status: dict[str, Any],
    link: NodeLink,
    link_state: LinkState,
    problem: GpuKernelError | None,
    away_since: float,
) -> dict[str, Any]:
    """Return {…the keeper's status, "kernel_id" (Jupyter's), "link", "hop", "error", …}, as JSON for clients."""
    described = {
        "node": link.name,
        "name": settings.name,
        **status,
        **times_of(status, link.round_trip if link_state is LinkState.UP else None),
        "link": link_state.value,
        "hop": link.name,
        "error": problem.to_json(settings.name) if problem else None,
        "away_since": away_since if link_state is LinkState.AWAY and away_since else None,
        "kernel_id": settings.kernel_id,
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
