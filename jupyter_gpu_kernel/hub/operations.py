"""The hub: what faces can ask for. It alone holds connections, links and local ports.

An operation is a method `op_<name>(call)`, here for nodes, in serving.py for kernels that front ends have; what it
returns is the JSON answer. docs/protocol.md lists them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Hashable
from typing import Any

from .. import __version__
from ..errors import AgentError, GpuKernelError, HubError
from ..wire import PROTOCOL
from .kernel_operations import KernelOperations
from .kernels import Kernels
from .node.check import check
from .node.node import Node
from .node.nodes import Nodes
from .node.replies import (
    KernelRows,
    NodeReply,
    SeenRows,
    conflict,
    distinct,
    has_kernel,
    is_gone,
    not_found,
)
from .paths import trust_file
from .rpc import Call

LOGIN_KEEPS = 12 * 3600.0
"""Seconds a connection that the owner signed in for is kept without a kernel."""


class Operations:
    """`await operation(call)` for each question of a face."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._nodes = Nodes(trust_file(), log)
        self._kernels = Kernels(self._nodes, log)
        self._kernel_operations = KernelOperations(self._nodes, self._kernels)

    @property
    def in_use(self) -> bool:
        """Whether a front end has a kernel here, one is being ended, or the owner signed in for those to come."""
        return self._kernels.in_use or self._nodes.in_use

    async def operation(self, call: Call) -> Any:
        """Runs the operation that the call names."""
        name = "op_" + call.op
        method = getattr(self, name, None) or getattr(self._kernel_operations, name, None)
        if method is None:
            raise HubError(
                f"this hub knows no operation {call.op!r}", remedy="Restart it: stop all front ends."
            )
        try:
            return await method(call)
        except GpuKernelError as error:
            error.fill_in("NAME", str(call.arguments.get("name") or ""))
            raise

    async def close(self) -> None:
        """Hangs up everywhere; keepers live on."""
        self._kernels.close()
        await self._nodes.hang_up(unused_only=False)

    # -------------------------------------------------------------------------- the hub and its nodes

    async def op_hello(self, call: Call) -> dict[str, Any]:
        """{"protocol", "version", "pid"}."""
        return {"protocol": PROTOCOL, "version": __version__, "pid": os.getpid()}

    async def op_login(self, call: Call) -> dict[str, Any]:
        """Opens the connection, asking the owner for what it must; it stays for kernels to come."""
        node = self._nodes.of(call.arguments["settings"])
        node.add_name(str(call.arguments.get("name") or ""))
        await node.connected(call)
        node.keep_open(LOGIN_KEEPS)
        return {"node": node.name}

    async def op_nodes(self, call: Call) -> list[dict[str, Any]]:
        """The nodes that there are connections to, without asking any: [{node, names, state, connected, problem}]."""
        return self._nodes.describe()

    async def op_hang_up(self, call: Call) -> dict[str, Any]:
        """Ends every connection that no kernel uses."""
        await self._nodes.hang_up(unused_only=True)
        return {"ok": True}

    async def op_probe(self, call: Call) -> dict[str, Any]:
        """Walks to the node, finds a Python with ipykernel, looks at the GPUs."""
        settings = call.arguments["settings"]
        node = self._nodes.of(settings)
        found, connection = await node.find_pythons(settings.get("python"), call)
        answer = {
            **found.to_json(),
            "hops": [dict(zip(("hop", "step", "seconds"), step, strict=True)) for step in connection.steps],
            "route": list(node.settings.route),
            "gpus": [],
            "gpus_error": None,
        }
        call.progress(node.name, "starting the agent")
        await node.link(found.python.path, call)
        call.progress(node.name, "looking at the GPUs")
        try:
            answer["gpus"] = (await node.request(found.python.path, call, "gpus", 60))["gpus"]
        except AgentError as error:
            answer["gpus_error"] = error.cause
        return answer

    async def op_check(self, call: Call) -> list[dict[str, Any]]:
        """Every step of the way, timed, with a remedy where it fails."""
        rows = await check(self._nodes, call.arguments["settings"], call)
        name = str(call.arguments.get("name") or "NAME")
        return [dict(row, remedy=row["remedy"].replace(" NAME", f" {name}")) for row in rows]

    async def op_gpus(self, call: Call) -> list[dict[str, Any]]:
        """Every GPU of every node, once."""
        answers = await self._nodes.ask_each(call, "gpus", timeout=60)
        return _rows(answers, "gpus", lambda row: row.get("uuid") or row.get("index"))

    async def op_ps(self, call: Call) -> list[dict[str, Any]]:
        """Our kernels on all nodes; of one that cannot be asked, those that front ends have here: away."""
        rows: list[dict[str, Any]] = []
        shown = KernelRows(self._nodes.started_on)
        for reply in await self._nodes.ask_each(call, "list"):
            node = reply.node
            if reply.error is not None:
                rows += [*self._kernels.away(node), reply.error_row]
            kernels = reply.answer.get("kernels", [])
            rows += [self._seen_here(node, state) for state in kernels if shown.add(node, state["id"])]
        return rows + shown.errors

    async def op_logs(self, call: Call) -> list[dict[str, Any]]:
        """A kernel's story, from the node that has it; from each that says so, where this hub does not know."""
        kernel_id = str(call.arguments["kernel"])
        ways = self._nodes.specs_for(kernel_id, call)
        answers = await self._nodes.ask_each(
            call, "story", specs=ways, more=lambda node: {"kernel": kernel_id}
        )
        told = distinct(reply for reply in answers if reply.error is None)
        if not told:
            raise not_found(
                kernel_id, answers, "What a node has recorded of one is lost when the node is rebooted."
            )
        rows = [dict(entry, hop=one.node.name) for one in told for entry in one.answer["story"]]
        if len(told) > 1:
            nodes = [one.node for one in told]
            rows.append({"node": nodes[0].name, "error": conflict(nodes, [kernel_id]).to_json()})
        return rows

    async def op_stop(self, call: Call) -> dict[str, Any]:
        """Ends a kernel for good, on every node that says it has it; returns once nothing of it is left."""
        kernel_id = str(call.arguments["kernel"])
        call.progress("", f"stopping {kernel_id}")
        answers = await self._nodes.ask_each(call, "list", specs=self._nodes.specs_for(kernel_id, call))
        having = [one for one in answers if has_kernel(one, kernel_id)]
        if not having:
            raise not_found(kernel_id, answers)
        done = await asyncio.gather(*(self._stop(one.node, kernel_id, call) for one in distinct(having)))
        failed = [error for error in done if error is not None]
        if failed and not (None in done and all(is_gone(error) for error in failed)):
            raise failed[0]
        return {"ok": True}

    async def op_leftovers(self, call: Call) -> list[dict[str, Any]]:
        """The owner's processes of kernels that no longer exist, on all nodes."""
        return _processes(await self._nodes.ask_each(call, "leftovers"), "leftovers")

    async def op_end_leftovers(self, call: Call) -> list[dict[str, Any]]:
        """Ends those of `leftovers`, as op_leftovers told them, that are still there; returns them, and an error for
        each that runs all the same: the nodes are asked again."""
        wanted = call.arguments["leftovers"]

        def of(node: Node) -> dict[str, Any]:
            return {"leftovers": [row for row in wanted if row["node"] == node.name]}

        ended = _processes(await self._nodes.ask_each(call, "end_leftovers", more=of), "ended")
        names = {_process(row) for row in wanted}
        left = [row for row in await self.op_leftovers(call) if "error" in row or _process(row) in names]
        still = {_process(row) for row in left}
        gone = [row for row in ended if "error" in row or _process(row) not in still]
        return gone + [row if "error" in row else _still_runs(row) for row in left]

    # -------------------------------------------------------------------------------------- helpers

    async def _stop(self, node: Node, kernel_id: str, call: Call) -> GpuKernelError | None:
        """Why it could not be ended there; None if it has."""
        try:
            why = "jupyter gpu-kernel stop"
            stopped = await node.request(node.python, call, "stop", kernel=kernel_id, why=why)
        except GpuKernelError as error:
            return error
        if stopped["ok"]:
            return None
        cause = f"kernel {kernel_id} was told to end, but something of it still runs"
        remedy = f"It may hang in the driver or a file system: see “jupyter gpu-kernel logs {kernel_id}”."
        return AgentError(cause, hop=node.name, remedy=remedy)

    def _seen_here(self, node: Node, state: dict[str, Any]) -> dict[str, Any]:
        known = {key: value for key, value in state.items() if key not in ("owner", "by")}
        attached = self._kernels.attached(node, state["id"])
        elsewhere = self._kernels.attached_from(state)
        shown = "detached" if state["state"] == "idle" and not attached and not elsewhere else state["state"]
        return dict(known, attached=attached, attached_from=elsewhere, state=shown, hop=node.name)


def _rows(
    answers: list[NodeReply], key: str, name: Callable[[dict[str, Any]], Hashable]
) -> list[dict[str, Any]]:
    """The lists under `key`, each row with its node as `hop` and once (by `name`); a node's error as a row."""
    seen, rows = SeenRows(), list[dict[str, Any]]()
    for reply in answers:
        said = reply.answer.get(key, [])
        rows += [dict(row, hop=reply.node.name) for row in said if seen.add(reply.node, name(row))]
        rows += [reply.error_row] if reply.error is not None else []
    return rows


def _processes(answers: list[NodeReply], key: str) -> list[dict[str, Any]]:
    """The same for processes; their node is the one that was asked, and is asked again."""
    rows = _rows(answers, key, lambda row: (row["pid"], row.get("start")))
    return [dict(row, node=row["hop"]) if "hop" in row else row for row in rows]


def _process(row: dict[str, Any]) -> tuple[Any, ...]:
    """Which process a row is about, over all nodes."""
    return tuple(row.get(key) for key in ("node", "pid", "start"))


def _still_runs(row: dict[str, Any]) -> dict[str, Any]:
    """The error for a process that was told to end."""
    cause = f"process {row['pid']} was told to end, but still runs"
    remedy = "It may hang in the driver or a file system; then it ends when that answers, or when the node restarts."
    return {"node": row["node"], "error": AgentError(cause, hop=row["node"], remedy=remedy).to_json()}
