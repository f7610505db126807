"""The operations for virtual environments on nodes: plan, create, status and remove.

The client downloads the wheels, with the user's settings of pip, and packs them into one file; it names the file, and
the hub sends it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from ...wire.runtime import Runtime
from ..kernels import Kernels
from ..node.check.python_probe import NodeFacts, Python
from ..node.node import Node
from ..node.nodes import Nodes
from ..rpc import Call
from ..transport.connection import Connection
from ..virtual_env import Answer, find_base, path_of, problem, run_script, script_text, wheel_facts

FOLDER = "~/.local/share/jupyter-gpu-kernel-envs"
"""Where environments are, by the kernelspec's name: in the home, which outlives the node's own storage."""


class EnvironmentOperations:
    """The operations; `kernels` are those that front ends have here."""

    def __init__(self, runtime: Runtime, nodes: Nodes, kernels: Kernels) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._kernels = kernels

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
        answer = await self._run(call, node, "plan", script_text("plan", path=place))
        path, state = path_of(answer.value("path")), answer.value("state", "new|ours|left")
        record = answer.record(path)
        if state == "ours" and not record:
            raise problem(node.name, "plan", "foreign", f"{path} is a copy of an environment")
        return {
            "path": path,
            "state": state,
            "packages": record.get("packages", []),
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
        record = {"id": self._runtime.new_id(), **facts, "made": self._runtime.time()}
        text = script_text(
            "create",
            archive,
            settings.setup,
            path=str(plan["path"]),
            python=str(plan["python"]),
            wanted=" ".join(call.arguments["wanted"]),
            content=json.dumps({**record, "packages": call.arguments["packages"]}),
        )
        call.progress(node.name, f"sending {len(archive) >> 20} MiB, and making the environment")
        answer = await self._run(call, node, "create", text)
        return {"mib": answer.mib, "node": node.name}

    async def op_environment_status(self, call: Call) -> dict[str, Any]:
        """Return {id, there, added, mib, users, node} of the environment `path` on the node.

        Among its users are also kernels on other nodes with a Python at that path, which may share the folder.
        """
        node = self._nodes.of(call.settings)
        path = str(call.arguments["path"])
        answer = await self._run(call, node, "status", script_text("status", path=path))
        record = answer.record(path)
        made = {canonicalize_name(name) for name, _ in record.get("packages", ())}
        folders = (one.removesuffix(".dist-info").partition("-") for one in answer.all("package"))
        added = sorted(
            (name, version) for name, _, version in folders if version and canonicalize_name(name) not in made
        )
        attached = [one.kernel_id for one in self._kernels if one.settings.python.startswith(f"{path}/")]
        users = [{"kernel": one} for one in dict.fromkeys([*answer.kernels, *sorted(attached)])]
        there = {"id": record.get("id", ""), "there": bool(answer.value("there"))}
        return {
            **there,
            "added": added if record else [],
            "mib": answer.mib,
            "users": users,
            "node": node.name,
        }

    async def op_remove_environment(self, call: Call) -> dict[str, Any]:
        """Remove the environment `path` with that `env_id` from the node, unless something uses it."""
        node = self._nodes.of(call.settings)
        path = str(call.arguments["path"])
        await self._nodes.close_idle_links(path)  # their agents run with the environment's Python
        text = script_text("remove", path=path, id=str(call.arguments["env_id"]))
        answer = await self._run(call, node, "remove", text)
        return {"mib": answer.mib, "node": node.name, "path": path}

    @staticmethod
    async def _run(call: Call, node: Node, verb: str, text: bytes) -> Answer:
        return await node.run(call, lambda connection: run_script(connection, node.name, verb, text))
