"""What a page does with one kernel, also with one of VS Code: interrupt, restart, stop, priority, story, and attach: a
kernel that runs without this server becomes one of its kernels."""

from __future__ import annotations

import asyncio
import os
from typing import Any, NamedTuple

import tornado
from jupyter_core.utils import ensure_async

from ... import kernelspecs
from ...errors import AgentError, GpuKernelError, SettingsError
from ...hub.sanitize import is_id
from ...program import ATTACH
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


@route("POST", "kernels/([^/]+)/attach")
async def attach(handler: Handler, named: str) -> dict[str, Any]:
    """Serve a running kernel in this server, as one of its kernels.

    {"path": the notebook that is to use it, relative to the server's root}; its own one if it is left out. The answer:
    {ok, kernel_id (Jupyter's), name (of its kernelspec), path, session}. `path` is null if the kernel has no notebook
    below the root, and `session` if there is no path, or if that has another kernel: the page may change it. A kernel
    that this server has already is not attached again.
    """
    path = await _wanted_path(handler)
    kernel = await find_kernel(handler, named)
    row = await handler.state.overview.kernel(kernel.id)
    if row is None:
        cause = f"no node that answers has a kernel {kernel.id}"
        raise AgentError(cause, remedy="It may have ended: its story says why.")
    path = path or row["path"]
    kernel_id = kernel.kernel_id or await _start(handler, row, path)
    session = await _session(handler.session_manager, kernel_id, path) if path else None
    name = handler.kernel_manager.get_kernel(kernel_id).kernel_name
    return {"ok": True, "kernel_id": kernel_id, "name": name, "path": path, "session": session}


async def _wanted_path(handler: Handler) -> str | None:
    path = handler.body("path").get("path")
    if path is None:
        return None
    if not isinstance(path, str) or not path.isprintable():
        raise SettingsError("“path” is not one line of text")
    path = path.strip("/")
    contents: Any = handler.contents_manager
    try:
        exists = await ensure_async(contents.file_exists(path))
    except tornado.web.HTTPError:  # it leads out of the root folder, or to a hidden file
        exists = False
    if not exists:
        raise SettingsError("there is no such notebook", remedy="Save it first, or choose another one.")
    return path


async def _start(handler: Handler, row: dict[str, Any], path: str | None) -> str:
    """Let the kernel manager start the kernelspec's kernel, which attaches to this one."""
    manager: Any = handler.kernel_manager
    contents: Any = handler.contents_manager
    sessions: Any = handler.session_manager
    environment = dict(os.environ)
    if path:
        environment = sessions.get_kernel_env(path, path.rpartition("/")[2])
    kernel_path = await ensure_async(contents.get_kernel_path(path=path or ""))
    name = await _kernelspec(handler, row)
    environment = {**environment, ATTACH: row["id"]}
    return str(await manager.start_kernel(kernel_name=name, path=kernel_path, env=environment))


async def _kernelspec(handler: Handler, row: dict[str, Any]) -> str:
    """Return the kernelspec of the kernel, or another one that leads to its node."""
    known = {spec.name for spec in await asyncio.to_thread(kernelspecs.find_all)}
    nodes = (await handler.state.overview.get())["nodes"]
    there = [name for node in nodes if node["node"] == row["hop"] for name in node["names"]]
    found = [name for name in (row["name"], *there) if name in known]
    if not found:
        raise SettingsError(
            "no kernelspec of this computer leads to the kernel's node", hop=row["hop"],
            remedy="“jupyter gpu-kernel add” adds one.",
        )  # fmt: skip
    return str(found[0])


async def _session(sessions: Any, kernel_id: str, path: str) -> Any:
    """Return the session of the notebook with this kernel; None if the notebook has another kernel."""
    if not await ensure_async(sessions.session_exists(path=path)):
        name = path.rpartition("/")[2]
        await sessions.create_session(path=path, name=name, type="notebook", kernel_id=kernel_id)
    session = await ensure_async(sessions.get_session(path=path))
    return session if session["kernel"] and session["kernel"]["id"] == kernel_id else None
