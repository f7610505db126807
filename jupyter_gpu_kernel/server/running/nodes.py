"""The work nodes of this user's front ends."""

from __future__ import annotations

from ...program import command
from ..api import API, Handler, list_of, permitted


class NodesHandler(Handler):
    """The work nodes of this user's front ends: [{node, names, state, connected, problem, program}].

    `names`: the kernelspecs that lead there; `program`: our command, for a terminal of this server.
    """

    @permitted("read")
    async def get(self) -> None:
        """Ask the hub, if there is one; it does not use the network for this."""
        await self.answer([dict(node, program=command()) for node in await list_of("nodes")])


HANDLERS = [(API + "/nodes", NodesHandler)]
