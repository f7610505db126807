"""The hub: what faces can ask for. It alone holds connections, links and local ports.

An operation is a method `op_<name>(call)`, here for nodes, in serving.py for kernels that front ends have; what it
returns is the JSON answer. docs/protocol.md lists them.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from .. import __version__
from ..errors import AgentError, GpuKernelError, HubError
from ..wire import PROTOCOL
from .check import check
from .faces import Call
from .nodes import Nodes, named
from .places import trust_file
from .serving import Serving

LOGIN_KEEPS = 12 * 3600.0
"""Seconds a connection that the owner signed in for is kept without a kernel."""


class Hub:
    """`await operation(call)` for each question of a face."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._nodes = Nodes(trust_file(), log)
        self._serving = Serving(self._nodes, log)

    @property
    def in_use(self) -> bool:
        """Whether a front end has a kernel here, one is being ended, or the owner signed in for those to come."""
        return self._serving.in_use or self._nodes.in_use

    async def operation(self, call: Call) -> Any:
        """Runs the operation that the call names."""
        name = "op_" + call.op
        method = getattr(self, name, None) or getattr(self._serving, name, None)
        if method is None:
            raise HubError(
                f"this hub knows no operation {call.op!r}", remedy="Restart it: stop all front ends."
            )
        try:
            return await method(call)
        except GpuKernelError as error:
            raise named(error, str(call.arguments.get("name") or "")) from None

    async def close(self) -> None:
        """Hangs up everywhere; keepers live on."""
        self._serving.close()
        await self._nodes.hang_up(unused_only=False)

    # -------------------------------------------------------------------------- the hub and its nodes

    async def op_hello(self, call: Call) -> dict[str, Any]:
        """{"protocol", "version", "pid"}."""
        return {"protocol": PROTOCOL, "version": __version__, "pid": os.getpid()}

    async def op_login(self, call: Call) -> dict[str, Any]:
        """Opens the connection, asking the owner for what it must; it stays for kernels to come."""
        node = self._nodes.of(call.arguments["settings"])
        await node.connected(call)
        node.keep(LOGIN_KEEPS)
        return {"node": node.name}

    async def op_nodes(self, call: Call) -> list[dict[str, Any]]:
        """The nodes that there are connections to, without asking any: [{node, state, problem}]."""
        return self._nodes.describe()

    async def op_hang_up(self, call: Call) -> dict[str, Any]:
        """Ends every connection that no kernel uses."""
        await self._nodes.hang_up(unused_only=True)
        return {"ok": True}

    async def op_probe(self, call: Call) -> dict[str, Any]:
        """Walks to the node, finds a Python with ipykernel, looks at the GPUs."""
        settings = call.arguments["settings"]
        node = self._nodes.of(settings)
        found, connection = await node.pythons(settings.get("python"), call)
        answer = {
            **found.to_json(),
            "hops": [dict(zip(("hop", "step", "seconds"), step, strict=True)) for step in connection.hops],
            "route": list(node.way.words),
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
        """Every GPU of every node."""
        answers = await self._nodes.each(call, "gpus", timeout=60)
        rows: list[dict[str, Any]] = []
        for _, answer in answers:
            rows += answer.get("gpus", [answer])
        return rows

    async def op_ps(self, call: Call) -> list[dict[str, Any]]:
        """Our kernels on all nodes; of one that cannot be asked, those that front ends have here: away."""
        rows: list[dict[str, Any]] = []
        for node, answer in await self._nodes.each(call, "list"):
            if "kernels" in answer:
                rows += [self._seen_here(state) for state in answer["kernels"]]
            else:
                rows += [one for one in await self._away(call) if one["hop"] == node.name] + [answer]
        return list({row.get("id") or row["node"]: row for row in rows}.values())  # two ways to one node

    async def op_logs(self, call: Call) -> list[dict[str, Any]]:
        """A kernel's story, from whichever node has it."""
        kernel_id = str(call.arguments["kernel"])
        answers = await self._nodes.each(call, "story", kernel=kernel_id)
        for _, answer in answers:
            if "story" in answer:
                return list(answer["story"])
        raise _unasked(answers) or AgentError(
            f"no node knows a kernel {kernel_id}", remedy="“jupyter gpu-kernel ps” lists the kernels."
        )

    async def op_stop(self, call: Call) -> dict[str, Any]:
        """Ends a kernel for good, wherever it is; returns once nothing of it is left."""
        kernel_id = str(call.arguments["kernel"])
        call.progress("", f"stopping {kernel_id}")
        answers = await self._nodes.each(call, "list")
        for node, answer in answers:
            if any(state["id"] == kernel_id for state in answer.get("kernels", [])):
                why = "jupyter gpu-kernel stop"
                stopped = await node.request(node.python, call, "stop", kernel=kernel_id, why=why)
                if stopped["ok"]:
                    return {"ok": True}
                cause = f"kernel {kernel_id} was told to end, but something of it still runs"
                remedy = (
                    f"It may hang in the driver or a file system: see “jupyter gpu-kernel logs {kernel_id}”."
                )
                raise AgentError(cause, hop=node.name, remedy=remedy)
        raise _unasked(answers) or AgentError(
            f"no node has a kernel {kernel_id}", remedy="“jupyter gpu-kernel ps” lists the kernels."
        )

    async def op_leftovers(self, call: Call) -> list[dict[str, Any]]:
        """The owner's processes of kernels that no longer exist, on all nodes."""
        return _rows(await self._nodes.each(call, "leftovers"), "leftovers")

    async def op_end_leftovers(self, call: Call) -> list[dict[str, Any]]:
        """Ends those of `leftovers`, as op_leftovers told them, that are still there; returns them."""
        wanted = call.arguments["leftovers"]
        return _rows(await self._nodes.each(call, "end_leftovers", leftovers=wanted), "ended")

    # -------------------------------------------------------------------------------------- helpers

    async def _away(self, call: Call) -> list[dict[str, Any]]:
        """The kernels that front ends have here and we cannot reach; why not is told once, of their node."""
        rows = [row for row in await self._serving.op_kernels(call) if row["link"] not in ("up", "lost")]
        return [
            dict({key: row[key] for key in row if key != "error"}, state="away", attached=True)
            for row in rows
        ]

    def _seen_here(self, state: dict[str, Any]) -> dict[str, Any]:
        attached = self._serving.attached(state["id"])
        return dict(state, attached=attached, state=_shown(state["state"], attached))


def _rows(answers: list[Any], key: str) -> list[dict[str, Any]]:
    """The lists under `key`, each row with its node; a node's error as a row."""
    return [
        dict(row, node=node.name) if key in answer else row
        for node, answer in answers
        for row in answer.get(key, [answer])
    ]


def _unasked(answers: list[Any]) -> GpuKernelError | None:
    """Why a node could not be asked: then what is nowhere may be there."""
    errors = [
        GpuKernelError.from_json(answer["error"])
        for _, answer in answers
        if "kind" in answer.get("error", ())
    ]
    return next((error for error in errors if not isinstance(error, AgentError)), None)


def _shown(state: str, attached: bool) -> str:
    return "detached" if state == "idle" and not attached else state
