"""What a page does with one kernel: interrupt, restart, stop, priority, and its story. Also with one of VS Code."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from jupyter_core.utils import ensure_async

from ... import kernelspecs
from ...errors import AgentError, GpuKernelError, SettingsError
from ...hub.sanitize import is_id
from ...wire import MAX_PRIORITY
from ..api import Handler, hub_client, list_of, route
from .overview import served_ids

_ASK_WITHIN = 60.0
_STOP_WITHIN = 120.0


class NamedKernel(NamedTuple):
    """The kernel that a page names. `kernel_id`: Jupyter's, if this server has it; `front_ends`: on this machine."""

    id: str
    kernel_id: str | None
    front_ends: int

    @property
    def is_ours_alone(self) -> bool:
        """Whether this server has the kernel, and no other front end."""
        return self.kernel_id is not None and self.front_ends == 1


async def find_kernel(handler: Handler, named: str) -> NamedKernel:
    """Return the kernel of this id, ours or Jupyter's in this server. Raises AgentError for what cannot be the id of a
    remote kernel."""
    known = await list_of("kernels")
    served = served_ids(handler.kernel_manager, known)
    ours = {theirs: ours for ours, theirs in served.items()}.get(named, named)
    if not is_id(ours) or (ours == named and named in handler.kernel_manager):
        raise AgentError("there is no remote kernel of this id", remedy="Reload the list of kernels.")
    rows = [one for one in known if one["id"] == ours]
    return NamedKernel(ours, served.get(ours), rows[0].get("front_ends", 1) if rows else 0)


async def _ask(op: str, kernel: str, timeout: float = _ASK_WITHIN, **more: Any) -> Any:
    """Return the result of the hub's operation on this kernel, which may be on any node. Nobody is asked."""
    specs = await asyncio.to_thread(kernelspecs.all_for_hub)
    if not specs:
        raise AgentError(f"there is no kernel {kernel}, because there is no remote GPU kernelspec")
    try:
        async with hub_client() as hub:
            return await hub.acall(op, timeout=timeout, kernel=kernel, specs=specs, **more)
    except GpuKernelError as error:
        error.fill_in("ID", kernel)
        raise


@route("POST", "kernels/([^/]+)/(interrupt|restart|stop)")
async def act(handler: Handler, named: str, action: str) -> dict[str, Any]:
    """Interrupt, restart or stop a kernel: {ok}, and `link`, "away" if it happens as soon as the link is up.

    The answer comes when that is done, or on its way to a node that is out of reach.
    """
    handler.body()
    done = await _ACTIONS[action](await find_kernel(handler, named), handler.kernel_manager)
    return {"ok": True, "link": (done or {}).get("link", "up")}


async def _interrupt(kernel: NamedKernel, manager: Any) -> Any:
    return await _ask("interrupt", kernel.id)


async def _restart(kernel: NamedKernel, manager: Any) -> Any:
    if not kernel.is_ours_alone:
        return await _ask("restart_kernel", kernel.id)
    await ensure_async(manager.restart_kernel(kernel.kernel_id))
    return None


async def _stop(kernel: NamedKernel, manager: Any) -> Any:
    if not kernel.is_ours_alone:
        await _ask("stop", kernel.id, _STOP_WITHIN)
    if kernel.kernel_id is not None and kernel.kernel_id in manager:
        await ensure_async(manager.shutdown_kernel(kernel.kernel_id))


_ACTIONS = {"interrupt": _interrupt, "restart": _restart, "stop": _stop}


@route("POST", "kernels/([^/]+)/priority")
async def priority(handler: Handler, named: str) -> dict[str, Any]:
    """Change the kernel's priority among the user's kernels that wait, to {"priority": N}. The answer: {ok, node,
    priority, place}."""
    wanted = handler.body("priority").get("priority")
    if type(wanted) is not int or abs(wanted) > MAX_PRIORITY:
        raise SettingsError(f"a priority is a number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    kernel = await find_kernel(handler, named)
    return {"ok": True, **await _ask("priority", kernel.id, priority=wanted)}


@route("GET", "kernels/([^/]+)/story")
async def story(handler: Handler, named: str) -> list[dict[str, Any]]:
    """The story of a kernel, also of one that has ended, as `logs --json`: [{time, event, text, hop, …}]. The node is
    asked."""
    kernel = await find_kernel(handler, named)
    return list(await _ask("logs", kernel.id))
