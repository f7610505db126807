"""What a page does with one kernel: interrupt, restart, stop, priority, and its story. Also with one of VS Code."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import tornado
from jupyter_core.utils import ensure_async

from ... import kernelspecs
from ...errors import AgentError, GpuKernelError, SettingsError
from ...hub.sanitize import is_id
from ...provisioner import NotStarted
from ...wire import MAX_PRIORITY
from ..api import API, Handler, list_of, permitted
from ..hub_client import hub_client
from .overview import OVERVIEW, Overview
from .served import served_ids

MAX_BODY = 16 * 1024
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

    @property
    def overview(self) -> Overview:
        """The overview, whose answer is old after an action."""
        return self.settings[OVERVIEW]  # type: ignore[no-any-return]

    async def find(self, named: str) -> NamedKernel:
        """Return the kernel of this id. Raises AgentError for what cannot be the id of a remote kernel."""
        here = await list_of("kernels")
        served = served_ids(self.kernel_manager, here)
        ours = {theirs: ours for ours, theirs in served.items()}.get(named, named)
        if not is_id(ours) or (ours == named and named in self.kernel_manager):
            raise AgentError("there is no remote kernel of this id", remedy="Reload the list of kernels.")
        rows = [one for one in here if one["id"] == ours]
        return NamedKernel(ours, served.get(ours), rows[0].get("front_ends", 1) if rows else 0)

    async def body(self, *names: str) -> dict[str, Any]:
        """Return the request's JSON object, which may have these keys only. Raises SettingsError."""
        if len(self.request.body) > MAX_BODY:
            raise SettingsError(f"the request has more than {MAX_BODY} bytes")
        try:
            body: Any = self.get_json_body() or {}
        except tornado.web.HTTPError:
            body = None
        if not isinstance(body, dict) or body.keys() - set(names):
            known = ", ".join(names) or "nothing"
            raise SettingsError(f"the request is not a JSON object with {known}")
        return body

    async def ask(self, op: str, kernel: str, timeout: float = _ASK_WITHIN, **more: Any) -> Any:
        """Return the result of the hub's operation on this kernel, which may be on any node. Nobody is asked."""
        specs = await asyncio.to_thread(kernelspecs.find_all, lambda error: None)
        if not specs:
            raise AgentError(f"there is no kernel {kernel}, because there is no remote GPU kernelspec")
        arguments = [spec.for_hub for spec in specs]
        try:
            async with hub_client() as hub:
                return await hub.acall(op, timeout=timeout, kernel=kernel, specs=arguments, **more)
        except GpuKernelError as error:
            error.fill_in("ID", kernel)
            raise

    async def refuse_for(self, error: Exception) -> None:
        """Answer that the action failed: 400 for a bad request, 404 for an unknown kernel, else 502."""
        self.overview.outdated()
        if isinstance(error, NotStarted):
            error = error.error
        assert isinstance(error, GpuKernelError), "other errors are bugs"
        unknown = isinstance(error, AgentError) and not error.hop
        status = 400 if isinstance(error, SettingsError) else 404 if unknown else 502
        await self.refuse_with(error, status)


class ActionHandler(KernelHandler):
    """Interrupt, restart or stop a kernel: {ok}, and `link`, "away" if it happens as soon as the link is up."""

    @permitted("execute")
    async def post(self, named: str, action: str) -> None:
        """Do it, and answer when it is done, or on its way to a node that is out of reach."""
        try:
            await self.body()
            kernel = await self.find(named)
            actions = {"interrupt": self._interrupt, "restart": self._restart, "stop": self._stop}
            done = await actions[action](kernel)
        except (GpuKernelError, NotStarted) as error:
            return await self.refuse_for(error)
        self.overview.outdated()
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
        try:
            priority = (await self.body("priority")).get("priority")
            if type(priority) is not int or abs(priority) > MAX_PRIORITY:
                raise SettingsError(f"a priority is a number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
            kernel = await self.find(named)
            changed = await self.ask("priority", kernel.id, priority=priority)
        except GpuKernelError as error:
            return await self.refuse_for(error)
        self.overview.outdated()
        await self.answer({"ok": True, **changed})


class StoryHandler(KernelHandler):
    """The log of a kernel, also of one that has ended."""

    @permitted("execute")
    async def get(self, named: str) -> None:
        """As `logs --json`: [{time, event, text, hop, …}]. Asks the node."""
        try:
            await self.answer(await self.ask("logs", (await self.find(named)).id))
        except GpuKernelError as error:
            await self.refuse_for(error)


HANDLERS = [
    (API + r"/kernels/([^/]+)/(interrupt|restart|stop)", ActionHandler),
    (API + r"/kernels/([^/]+)/priority", PriorityHandler),
    (API + r"/kernels/([^/]+)/story", StoryHandler),
]
