"""The HTTP API below jupyter-gpu-kernel/api: kernels, nodes, and the outputs of a kernel's last cells.

Requests are authenticated and authorised as in every Jupyter handler, and answered by the hub. No request starts a hub
or a connection.
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

    The remedies name our command with the path that works in a terminal of this server.
    """

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """Ask the hub, if there is one; it does not use the network for this."""
        await self.finish(json.dumps(await asyncio.to_thread(_kernels)))


class NodesHandler(APIHandler):
    """The work nodes of this user's front ends: [{node, names, state, connected, problem, program}].

    `names`: the kernelspecs that lead there; `program`: our command, for a terminal of this server.
    """

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """Ask the hub, if there is one; it does not use the network for this."""
        await self.finish(json.dumps(await asyncio.to_thread(_nodes)))


class JournalHandler(APIHandler):
    """The last cells of a kernel and their outputs: {kernel, cells: [{msg_id, cell_id, code, status, outputs, …}]}."""

    auth_resource = "kernels"

    @tornado.web.authenticated
    @authorized("execute")  # type: ignore[untyped-decorator]
    async def get(self, kernel: str) -> None:
        """`kernel`: our id or Jupyter's; `?cell=`: the id of a notebook's cell, for that one only. Asks the node."""
        known = await asyncio.to_thread(_list_of, "kernels")
        if not any(kernel in (one["id"], one["kernel_id"]) for one in known):
            return await self._refuse(404, f"no front end here uses a remote kernel {kernel}")
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
        return []  # without a hub there are no kernels and nodes


def _kernels() -> list[dict[str, Any]]:
    return [_with_program(kernel, command()) for kernel in _list_of("kernels")]


def _with_program(description: dict[str, Any], program: str) -> dict[str, Any]:
    """The description of a kernel, or its error, with `program` in the remedies."""
    description = dict(description)
    if description.get("remedy"):
        description["remedy"] = with_program(description["remedy"], program)
    if description.get("error"):
        description["error"] = _with_program(description["error"], program)
    return description


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
