"""The hub's operations for virtual environments on nodes: plan, create, status and remove.

An operation is a method `op_<name>(call)`, as in `hub/operations.py`. The client downloads the wheels, with the user's
settings of pip, and packs them into one file; it names the file, and the hub sends it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ...wire.runtime import Runtime
from ..kernels import Kernels
from ..node.check.python_probe import Python
from ..node.node import Node
from ..node.nodes import Nodes
from ..rpc import Call
from ..transport.connection import Connection
from .base_python import find_base
from .node_script import NodeScript, with_any_python, with_python

FOLDER = "~/.local/share/jupyter-gpu-kernel-envs"
"""Where environments are, by the kernelspec's name: in the home, which outlives the node's own storage."""


class EnvironmentOperations:
    """The operations; `kernels` are those that front ends have here."""

    def __init__(self, runtime: Runtime, nodes: Nodes, kernels: Kernels) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._kernels = kernels

    async def op_plan_environment(self, call: Call) -> dict[str, Any]:
        """Return how an environment would be made there: {path, state, python, version, …}. Changes nothing."""
        settings = call.settings
        node = self._nodes.of(settings)
        request = {"path": str(call.arguments.get("env_dir") or f"{FOLDER}/{call.arguments['name']}")}
        call.progress(node.name, "looking for a Python for the environment")

        def find(connection: Connection) -> Python:
            wanted = settings.python
            return find_base(connection, node.name, wanted, settings.setup, self._runtime.monotonic)

        base = await node.run(call, find)
        answer = await self._run(call, node, "plan", with_python(base.path, settings.setup, "plan", request))
        return {**answer, "setup": base.source == "setup"}

    async def op_create_environment(self, call: Call) -> dict[str, Any]:
        """Make the environment of a `plan`: from the wheels in the local file `archive`, install those of the
        requirements `wanted`. Return {mib, node}."""
        settings, plan = call.settings, call.arguments["plan"]
        archive = await asyncio.to_thread(Path(str(call.arguments["archive"])).read_bytes)
        given = {key: call.arguments[key] for key in ("wanted", "packages")}
        request = {"path": plan["path"], "size": len(archive), **given}
        script = with_python(plan["python"], settings.setup, "create", request)
        return await self._run(call, self._nodes.of(settings), "create", script, archive)

    async def op_environment_status(self, call: Call) -> dict[str, Any]:
        """Return {id, there, added, mib, users, node} of the environment `path` on the node.

        Among its users are also kernels on other nodes with a Python at that path, which may share the folder.
        """
        node = self._nodes.of(call.settings)
        path = str(call.arguments["path"])
        answer = await self._run(call, node, "status", with_any_python("status", {"path": path}))
        attached = {
            remote.kernel_id for remote in self._kernels if remote.settings.python.startswith(f"{path}/")
        }
        known = [one["kernel"] for one in answer["users"]]
        users = [{"kernel": one} for one in dict.fromkeys([*known, *sorted(attached)])]
        return {**answer, "users": users}

    async def op_remove_environment(self, call: Call) -> dict[str, Any]:
        """Remove the environment `path` with that `env_id` from the node, unless something uses it."""
        node = self._nodes.of(call.settings)
        path = str(call.arguments["path"])
        await self._nodes.close_idle_links(path)  # their agents run with the environment's Python
        script = with_any_python("remove", {"path": path, "id": call.arguments["env_id"]})
        answer = await self._run(call, node, "remove", script)
        return {**answer, "path": path}

    @staticmethod
    async def _run(call: Call, node: Node, verb: str, script: str, archive: bytes = b"") -> dict[str, Any]:
        """Return the answer, and the node's name. If the client leaves meanwhile, end the program on the node."""
        program = NodeScript(node.name, verb, lambda text: call.progress(node.name, text))
        try:
            answer = await node.run(call, lambda one: program.run(one, script, archive))
        except asyncio.CancelledError:
            await asyncio.to_thread(program.close)
            raise
        return {**answer, "node": node.name}
