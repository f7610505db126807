"""The operations for virtual environments on nodes: plan and create.

The client downloads the wheels, with the user's settings of pip, and packs them into one file; it names the file, and
the hub sends it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from ...wire.runtime import Runtime
from ..node.check.python_probe import NodeFacts, Python
from ..node.node import Node
from ..node.nodes import Nodes
from ..rpc import Call
from ..transport.connection import Connection
from ..virtual_env import Answer, find_base, path_of, problem, run_script, script_text, wheel_facts

FOLDER = "~/.local/share/jupyter-gpu-kernel-envs"
"""Where environments are, by the kernelspec's name: in the home, which outlives the node's own storage."""


class EnvironmentOperations:
    """The operations."""

    def __init__(self, runtime: Runtime, nodes: Nodes) -> None:
        self._runtime = runtime
        self._nodes = nodes

    async def op_plan_environment(self, call: Call) -> dict[str, Any]:
        """Return how an environment would be made there: {path, state, packages, python, setup, node} and what decides
        which wheels fit. Changes nothing."""
        settings = call.settings
        node = self._nodes.of(settings)
        place = str(call.arguments.get("env_dir") or f"{FOLDER}/{call.arguments['name']}")
        call.progress(node.name, "looking for a Python for the environment")

        def find(connection: Connection) -> tuple[Python, NodeFacts]:
            wanted = settings.python
            return find_base(connection, node.name, wanted, settings.setup, self._runtime.monotonic)

        base, facts = await node.run(call, find)
        answer = await self._run(call, node, script_text("plan", path=place))
        path, state = path_of(answer.value("path")), answer.value("state", "new|ours|left")
        packages = answer.packages(path)
        if state == "ours" and not packages:
            raise problem(node.name, "foreign", f"{path} is a copy of an environment")
        return {
            "path": path,
            "state": state,
            "packages": packages,
            "python": path_of(base.path),
            **wheel_facts(base, facts, bool(answer.value("musl")), node.name),
            "setup": base.source == "setup",
            "node": node.name,
        }

    async def op_create_environment(self, call: Call) -> dict[str, Any]:
        """Make the environment of a `plan`: from the wheels in the local file `archive`, install those of the
        requirements `wanted`. Return {mib, node}."""
        settings, plan = call.settings, call.arguments["plan"]
        node = self._nodes.of(settings)
        archive = await asyncio.to_thread(Path(str(call.arguments["archive"])).read_bytes)
        facts = {key: plan[key] for key in ("path", "python", "version", "node")}
        record = {**facts, "made": self._runtime.time(), "packages": call.arguments["packages"]}
        text = script_text(
            "create",
            archive,
            settings.setup,
            path=str(plan["path"]),
            python=str(plan["python"]),
            wanted=" ".join(call.arguments["wanted"]),
            content=json.dumps(record),
        )
        call.progress(node.name, f"sending {len(archive) >> 20} MiB, and making the environment")
        answer = await self._run(call, node, text)
        return {"mib": answer.mib, "node": node.name}

    @staticmethod
    async def _run(call: Call, node: Node, text: bytes) -> Answer:
        return await node.run(call, lambda connection: run_script(connection, node.name, text))
