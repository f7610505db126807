"""What a page does with one kernel: interrupt, restart, stop, priority, and its story. Also with one of VS Code."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from jupyter_core.utils import ensure_async

from ... import kernelspecs
from ...errors import AgentError, GpuKernelError, SettingsError
from ...hub.sanitize import is_id
from ...wire import MAX_PRIORITY
from ..api import API, Handler, hub_client, list_of, permitted
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
        """Whether this server has it, and no other front end."""
        return self.kernel_id is not None and self.front_ends == 1


class KernelHandler(Handler):
    """Base of the handlers below: what they ask is about one kernel, by our id or Jupyter's in this server."""

    def finish(self, *answer: Any) -> Any:
        """Send the answer, or the error, after which no page gets an overview from before the request."""
        if self.request.method != "GET":
            self.state.overview.outdated()
        return super().finish(*answer)

    async def find(self, named: str) -> NamedKernel:
        """Return the kernel of this id. Raises AgentError for what cannot be the id of a remote kernel."""
        known = await list_of("kernels")
        served = served_ids(self.kernel_manager, known)
        ours = {theirs: ours for ours, theirs in served.items()}.get(named, named)
        if not is_id(ours) or (ours == named and named in self.kernel_manager):
            raise AgentError("there is no remote kernel of this id", remedy="Reload the list of kernels.")
        rows = [one for one in known if one["id"] == ours]
        return NamedKernel(ours, served.get(ours), rows[0].get("front_ends", 1) if rows else 0)

    async def ask(self, op: str, kernel: str, timeout: float = _ASK_WITHIN, **more: Any) -> Any:
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


class ActionHandler(KernelHandler):
    """Interrupt, restart or stop a kernel: {ok}, and `link`, "away" if it happens as soon as the link is up."""

    @permitted("execute")
    async def post(self, named: str, action: str) -> None:
        """Do it, and answer when it is done, or on its way to a node that is out of reach."""
        self.body()
        actions = {"interrupt": self._interrupt, "restart": self._restart, "stop": self._stop}
        done = await actions[action](await self.find(named))
        await self.answer({"ok": True, "link": (done or {}).get("link", "up")})

    async def _interrupt(self, kernel: NamedKernel) -> Any:
        return await self.ask("interrupt", kernel.id)

    async def _restart(self, kernel: NamedKernel) -> Any:
        if not kernel.is_ours_alone:
            return await self.ask("restart_kernel", kernel.id)
        manager: Any = self.kernel_manager
        await ensure_async(manager.restart_kernel(kernel.kernel_id))
        return None

    async def _stop(self, kernel: NamedKernel) -> Any:
        manager: Any = self.kernel_manager
        if not kernel.is_ours_alone:
            await self.ask("stop", kernel.id, _STOP_WITHIN)
        if kernel.kernel_id is not None and kernel.kernel_id in manager:
            await ensure_async(manager.shutdown_kernel(kernel.kernel_id))


class PriorityHandler(KernelHandler):
    """The kernel's priority among the user's kernels that wait."""

    @permitted("execute")
    async def post(self, named: str) -> None:
        """{"priority": N}. The answer: {ok, node, priority, place}."""
        priority = self.body("priority").get("priority")
        if type(priority) is not int or abs(priority) > MAX_PRIORITY:
            raise SettingsError(f"a priority is a number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
        kernel = await self.find(named)
        changed = await self.ask("priority", kernel.id, priority=priority)
        await self.answer({"ok": True, **changed})


class StoryHandler(KernelHandler):
    """The story of a kernel, also of one that has ended."""

    @permitted("execute")
    async def get(self, named: str) -> None:
        """As `logs --json`: [{time, event, text, hop, …}]. Asks the node."""
        kernel = await self.find(named)
        await self.answer(await self.ask("logs", kernel.id))


HANDLERS = [
    (API + r"/kernels/([^/]+)/(interrupt|restart|stop)", ActionHandler),
    (API + r"/kernels/([^/]+)/priority", PriorityHandler),
    (API + r"/kernels/([^/]+)/story", StoryHandler),
]
