"""`GET overview`: everything that the panel shows. Several pages share one request to the hub, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from ... import kernelspecs
from ...kernelspecs import Kernelspec
from ...program import command
from ...provisioner import RemoteGPUProvisioner
from ...wire.runtime import Runtime
from ..api import Handler, hub_client, route, with_command
from .gpu_use import GpuHistory
from .overview_rows import kernel_rows, node_rows

_FRESH = 2.0
"""Seconds for which an answer serves other pages, too."""
_PATIENCE = 2.0
"""Seconds for which the hub waits for each node; then it returns the node's last reply, or that it is late."""
_TIMEOUT = 60.0


class Overview:
    """Asks the hub when a page asks, and at no other time."""

    def __init__(self, runtime: Runtime, kernel_manager: Any, root: str) -> None:
        """`kernel_manager`: of the server; `root`: the folder of its notebooks, "" if there is none on this machine."""
        self._runtime = runtime
        self._kernel_manager = kernel_manager
        self._root = root
        self._history = GpuHistory()
        self._asking: asyncio.Task[dict[str, Any]] | None = None
        self._answered_at = 0.0

    async def get(self) -> dict[str, Any]:
        """Return {time, nodes, kernels}. Raises GpuKernelError if the hub cannot be asked."""
        if self._asking is None or (self._asking.done() and self._is_old):
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)  # another page may wait for it, too

    async def kernel(self, kernel_id: str) -> dict[str, Any] | None:
        """Return a new row of this kernel; None if no node that answers has it."""
        self.outdated()
        rows = (await self.get())["kernels"]
        return next((row for row in rows if row["id"] == kernel_id), None)

    def outdated(self) -> None:
        """Something has just been changed: the next page gets a new answer, and not one that is on its way already."""
        self._asking = None

    @property
    def _is_old(self) -> bool:
        assert self._asking is not None, "there is an answer"
        return self._asking.exception() is not None or self._runtime.monotonic() - self._answered_at > _FRESH

    async def _ask(self) -> dict[str, Any]:
        specs: list[Kernelspec] = await asyncio.to_thread(kernelspecs.find_all)
        answers = await _ask_hub(specs) if specs else {op: [] for op in ("nodes", "gpus", "ps", "kernels")}
        now, program = self._runtime.time(), command()
        served = served_ids(self._kernel_manager, answers["kernels"])
        kernels = await asyncio.to_thread(kernel_rows, answers["ps"], answers["kernels"], served, self._root)
        self._history.add(now, answers["gpus"])
        nodes = node_rows(specs, answers, kernels, self._history)
        self._answered_at = self._runtime.monotonic()
        return {
            "time": now,
            "nodes": [with_command(one, program) for one in nodes],
            "kernels": [with_command(one, program) for one in kernels],
        }


async def _ask_hub(specs: list[Kernelspec]) -> dict[str, list[dict[str, Any]]]:
    """Return the answer to each operation. Nobody is asked for a password."""
    arguments = [spec.for_hub for spec in specs]
    async with hub_client() as hub:
        gpus, ps = await asyncio.gather(
            *(hub.acall(op, specs=arguments, patience=_PATIENCE, timeout=_TIMEOUT) for op in ("gpus", "ps"))
        )
        nodes = await hub.acall("nodes", specs=arguments, timeout=_TIMEOUT)
        attached = await hub.acall("kernels", timeout=_TIMEOUT)
    return {"gpus": gpus, "ps": ps, "nodes": nodes, "kernels": attached}


def served_ids(kernel_manager: Any, attached: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return Jupyter's id of each remote kernel that this server has, by our id. `attached`: the hub's rows of the
    kernels of front ends on this machine.

    A kernel that the provisioner serves is known to it; one whose kernelspec has argv alone, to the hub.
    """
    known = set(kernel_manager.list_kernel_ids())
    by_hub = {one["id"]: one["kernel_id"] for one in attached if one.get("kernel_id")}
    by_id = {**by_hub, **RemoteGPUProvisioner.served()}
    return {ours: theirs for ours, theirs in by_id.items() if theirs in known}


@route("GET", "overview")
async def overview(handler: Handler) -> dict[str, Any]:
    """All nodes of this machine's kernelspecs with their GPUs, and the user's kernels: {time, nodes, kernels}.

    It may start the hub, and connects to nodes where that needs no answer of the user. Of a node that is slow, the
    overview has the last answer if that is recent, else a note that the node is late.
    """
    return await handler.state.overview.get()
