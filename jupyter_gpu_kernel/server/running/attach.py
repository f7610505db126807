"""`POST kernels/ID/attach`: a kernel that runs without this server becomes one of its kernels."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import tornado
from jupyter_core.utils import ensure_async

from ... import kernelspecs
from ...errors import AgentError, SettingsError
from ...program import ATTACH
from ..api import Handler, route
from .actions import find_kernel


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
