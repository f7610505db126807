"""Operations on one kernel that its user asks for, whichever front end has it, or none: interrupt and restart.

Those of one front end, which needs to own the kernel, are in `front_end_operations.py`.
"""

from __future__ import annotations

from typing import Any

from .kernel.remote_kernel import RemoteKernel
from .kernel.states import LinkState
from .kernels import Kernels
from .node.nodes import Nodes, not_found
from .rpc import Call


class KernelOperations:
    """`await op_NAME(call)` for each operation NAME."""

    def __init__(self, nodes: Nodes, kernels: Kernels) -> None:
        self._nodes = nodes
        self._kernels = kernels

    async def op_interrupt(self, call: Call) -> dict[str, Any]:
        """Interrupt what the kernel runs, or its wait. Return {"node", "link"}; "away": as soon as the link is up."""
        remote = self._here(call)
        if remote is None:
            return await self._ask("interrupt", call)
        remote.command("interrupt")
        return _done(remote)

    async def op_restart_kernel(self, call: Call) -> dict[str, Any]:
        """Start a new process in place of the kernel's, with the same GPUs. Return the same."""
        remote = self._here(call)
        if remote is None:
            return await self._ask("restart", call)
        await self._kernels.relocation.restart(remote, call)
        return _done(remote)

    def _here(self, call: Call) -> RemoteKernel | None:
        """Return the kernel if front ends here have it; None if it is detached, or another computer has it."""
        remote = self._kernels.here(str(call.arguments["kernel"]))
        return None if remote is None or remote.link_state is LinkState.TAKEN else remote

    async def _ask(self, do: str, call: Call) -> dict[str, Any]:
        """Send the request to the keeper, on the node that has it."""
        kernel_id = str(call.arguments["kernel"])
        answers = await self._kernels.jobs.ask_each(
            call, do, specs=self._nodes.specs_for(kernel_id, call), more=lambda node: {"kernel": kernel_id}
        )
        for reply in answers:
            if reply.error is None:
                return {"node": reply.node.name, "link": LinkState.UP.value}
        raise not_found(kernel_id, answers)


def _done(remote: RemoteKernel) -> dict[str, Any]:
    return {"node": remote.link.name, "link": remote.link_state.value}
