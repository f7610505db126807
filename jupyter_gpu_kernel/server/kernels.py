"""The remote kernels of this user's front ends, and the outputs of their last cells."""

from __future__ import annotations

import tornado
from jupyter_server.auth.decorator import authorized

from ..errors import GpuKernelError
from ..program import command
from .api import API, Handler, ask_hub, list_of, with_command


class KernelsHandler(Handler):
    """The remote kernels of this user's front ends: [{id, kernel_id, name, node, state, link, gpus, error, remedy}].

    The remedies name our command with the path that works in a terminal of this server.
    """

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """Ask the hub, if there is one; it does not use the network for this."""
        program = command()
        await self.answer([with_command(kernel, program) for kernel in await list_of("kernels")])


class JournalHandler(Handler):
    """The last cells of a kernel and their outputs: {kernel, cells: [{msg_id, cell_id, code, status, outputs, …}]}."""

    @tornado.web.authenticated
    @authorized("execute")  # type: ignore[untyped-decorator]
    async def get(self, kernel: str) -> None:
        """`kernel`: our id or Jupyter's; `?cell=`: the id of a notebook's cell, for that one only. Asks the node."""
        known = await list_of("kernels")
        if not any(kernel in (one["id"], one["kernel_id"]) for one in known):
            return await self.refuse(404, f"no front end here uses a remote kernel {kernel}")
        try:
            await self.answer(
                dict(await ask_hub("journal", kernel=kernel, cell=self.get_query_argument("cell", "")))
            )
        except GpuKernelError as error:
            await self.refuse_with(error)


HANDLERS = [
    (API + "/kernels", KernelsHandler),
    (API + r"/kernels/([^/]+)/journal", JournalHandler),
]
