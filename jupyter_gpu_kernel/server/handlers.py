"""HTTP below jupyter-gpu-kernel/api: kernels, nodes, and what a kernel's last cells said. Thin: the hub knows it all.

Authenticated and authorised like every Jupyter handler. Nothing here starts a hub or a connection.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import tornado
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler

from ..client import HubClient
from ..errors import GpuKernelError
from ..program import command
from ..wire.texts import with_program


class KernelsHandler(APIHandler):
    """The remote kernels of this user's front ends: [{id, kernel_id, name, node, state, link, gpus, error, remedy}].

    The remedies name our command as one types it in a terminal of this server.
    """

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """Asks the hub, if there is one; never the network."""
        await self.finish(json.dumps(await asyncio.to_thread(_kernels)))


class NodesHandler(APIHandler):
    """The work nodes of this user's front ends: [{node, names, state, connected, problem, program}].

    `names`: of the kernelspecs that led there; `program`: how one types our command in a terminal of this server.
    """

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """Asks the hub, if there is one; never the network."""
        await self.finish(json.dumps(await asyncio.to_thread(_nodes)))


class JournalHandler(APIHandler):
    """What the last cells of a kernel said: {kernel, cells: [{msg_id, cell_id, code, status, outputs, …}]}."""

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized("execute")  # type: ignore[untyped-decorator]
    async def get(self, kernel: str) -> None:
        """`kernel`: our id or Jupyter's; `?cell=` the notebook's id of a cell, for that one only. Asks the node."""
        known = await asyncio.to_thread(_list_of, "kernels")
        if not any(kernel in (one["id"], one["kernel_id"]) for one in known):
            return await self._refuse(404, f"no front end here has a remote kernel {kernel}")
        try:
            journal = await asyncio.to_thread(_journal, kernel, self.get_query_argument("cell", ""))
        except GpuKernelError as error:
            return await self._refuse(502, str(error))
        await self.finish(json.dumps(journal))

    async def _refuse(self, status: int, message: str) -> None:
        self.set_status(status)
        await self.finish(json.dumps({"message": message}))


def _list_of(op: str) -> list[dict[str, Any]]:
    try:
        with HubClient(start=False) as hub:
            return list(hub.call(op, timeout=5))
    except GpuKernelError:
        return []  # no hub: no kernels, no nodes


def _kernels() -> list[dict[str, Any]]:
    return [_with_program(kernel, command()) for kernel in _list_of("kernels")]


def _with_program(told: dict[str, Any], program: str) -> dict[str, Any]:
    """The kernel, or its error, with `program` in its remedies."""
    told = dict(told)
    if told.get("remedy"):
        told["remedy"] = with_program(told["remedy"], program)
    if told.get("error"):
        told["error"] = _with_program(told["error"], program)
    return told


def _nodes() -> list[dict[str, Any]]:
    return [dict(node, program=command()) for node in _list_of("nodes")]


def _journal(kernel: str, cell: str) -> dict[str, Any]:
    with HubClient(start=False) as hub:
        return dict(hub.call("journal", kernel=kernel, cell=cell, timeout=60))


_API = "/jupyter-gpu-kernel/api"
HANDLERS = [
    (_API + "/kernels", KernelsHandler),
    (_API + "/nodes", NodesHandler),
    (_API + r"/kernels/([^/]+)/journal", JournalHandler),
]
