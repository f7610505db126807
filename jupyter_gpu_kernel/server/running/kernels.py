"""The remote kernels of this user's front ends, the outputs of their last cells, and their nodes."""

from __future__ import annotations

from jupyter_core.utils import ensure_async

from ...program import command
from ..api import API, Handler, RequestRefused, ask_hub, list_of, permitted, shown_node, with_command


class KernelsHandler(Handler):
    """The remote kernels of this user's front ends: [{id, kernel_id, name, node, state, link, gpus, error, remedy}].

    The remedies name our command with the path that works in a terminal of this server.
    """

    @permitted("read")
    async def get(self) -> None:
        """Ask the hub, if there is one; it does not use the network for this.

        `?gpus=`: Jupyter's ids of kernels that get `gpu_use`, too; later requests have what their nodes answer.
        """
        program, wanted = command(), set(self.get_query_arguments("gpus"))
        kernels = [
            dict(with_command(kernel, program), node=shown_node(kernel))
            for kernel in await list_of("kernels")
        ]
        if wanted and await self._may_ask_nodes():
            for kernel in kernels:
                if kernel["kernel_id"] in wanted:
                    kernel["gpu_use"] = self.state.gpu_use.of(kernel)
        await self.answer(kernels)

    async def _may_ask_nodes(self) -> bool:
        """As `@permitted("execute")` does; without the right the answer has all the rest."""
        allowed = self.authorizer.is_authorized(self, self.current_user, "execute", self.auth_resource)
        return bool(await ensure_async(allowed))


class JournalHandler(Handler):
    """The last cells of a kernel and their outputs: {kernel, cells: [{msg_id, cell_id, code, status, outputs, …}]}."""

    @permitted("execute")
    async def get(self, kernel: str) -> None:
        """`kernel`: our id or Jupyter's; `?cell=`: the id of a notebook's cell, for that one only. Asks the node."""
        known = await list_of("kernels")
        if not any(kernel in (one["id"], one["kernel_id"]) for one in known):
            raise RequestRefused(404, f"no front end here uses a remote kernel {kernel}")
        answer = await ask_hub("journal", kernel=kernel, cell=self.get_query_argument("cell", ""))
        await self.answer(dict(answer))


class NodesHandler(Handler):
    """The work nodes of this user's front ends: [{node, names, state, connected, problem, program}].

    `names`: the kernelspecs that lead there; `program`: our command, for a terminal of this server.
    """

    @permitted("read")
    async def get(self) -> None:
        """Ask the hub, if there is one; it does not use the network for this."""
        await self.answer([dict(node, program=command()) for node in await list_of("nodes")])


HANDLERS = [
    (API + "/nodes", NodesHandler),
    (API + "/kernels", KernelsHandler),
    (API + r"/kernels/([^/]+)/journal", JournalHandler),
]
