"""The remote kernels of this user's front ends, the outputs of their last cells, and their nodes."""

from __future__ import annotations

from typing import Any

from jupyter_core.utils import ensure_async

from ...program import command
from ..api import Handler, RequestRefused, ask_hub, list_of, route, shown_node, with_command


@route("GET", "kernels", "read")
async def kernels(handler: Handler) -> list[dict[str, Any]]:
    """The remote kernels of this user's front ends: [{id, kernel_id, name, node, state, link, gpus, error, remedy}].

    The hub is asked, if there is one; it does not use the network for this. `?gpus=`: Jupyter's ids of kernels that get
    `gpu_use`, too; later requests have what their nodes answer. The remedies name our command with the path that works
    in a terminal of this server.
    """
    program, wanted = command(), set(handler.get_query_arguments("gpus"))
    shown = [
        dict(with_command(kernel, program), node=shown_node(kernel)) for kernel in await list_of("kernels")
    ]
    if wanted and await _may_ask_nodes(handler):
        for kernel in shown:
            if kernel["kernel_id"] in wanted:
                kernel["gpu_use"] = handler.state.gpu_use.of(kernel)
    return shown


async def _may_ask_nodes(handler: Handler) -> bool:
    """Return whether the user has the right to "execute"; without that right the answer has all the rest."""
    allowed = handler.authorizer.is_authorized(
        handler, handler.current_user, "execute", handler.auth_resource
    )
    return bool(await ensure_async(allowed))


@route("GET", "kernels/([^/]+)/journal")
async def journal(handler: Handler, kernel: str) -> dict[str, Any]:
    """The last cells of a kernel and their outputs: {kernel, cells: [{msg_id, cell_id, code, status, outputs, …}]}. The
    node is asked.

    `kernel`: our id or Jupyter's; `?cell=`: the id of a notebook's cell, for that one only.
    """
    known = await list_of("kernels")
    if not any(kernel in (one["id"], one["kernel_id"]) for one in known):
        raise RequestRefused(404, f"no front end here uses a remote kernel {kernel}")
    return dict(await ask_hub("journal", kernel=kernel, cell=handler.get_query_argument("cell", "")))


@route("GET", "nodes", "read")
async def nodes(handler: Handler) -> list[dict[str, Any]]:
    """The work nodes of this user's front ends: [{node, names, state, connected, problem, program}].

    The hub is asked, if there is one; it does not use the network for this. `names`: the kernelspecs that lead there;
    `program`: our command, for a terminal of this server.
    """
    return [dict(node, program=command()) for node in await list_of("nodes")]
