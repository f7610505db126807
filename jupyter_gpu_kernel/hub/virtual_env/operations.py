"""The hub's operations for virtual environments on nodes: plan, create, status and remove.

An operation is a method `op_<name>(call)`, as in `hub/operations.py`. The client downloads the wheels, with the user's
settings of pip; it names the files, and the hub sends them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import AgentError, HubError
from ...wire.runtime import Runtime
from ..kernels import Kernels
from ..node.node import Node
from ..node.nodes import Nodes
from ..node.shared_connection import Connection
from ..rpc import Call
from ..transport.stream import CommandStream
from .answers import checked
from .base_python import base_of, find_base
from .node_script import NodeScript, Send

FOLDER = "~/.local/share/jupyter-gpu-kernel-envs"
"""Where environments are, by the kernelspec's name: in the home, which outlives the node's own storage."""
ESTIMATE = 120
"""MiB that an environment takes, roughly, with the wheels; known exactly when these are downloaded."""
_BLOCK = 256 * 1024
_MAX_WHEELS = 500


class EnvironmentOperations:
    """The operations; `kernels` are those that front ends have here."""

    def __init__(self, runtime: Runtime, nodes: Nodes, kernels: Kernels) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._kernels = kernels

    async def op_plan_environment(self, call: Call) -> dict[str, Any]:
        """Return how an environment would be made there: {path, state, python, version, …}. Changes nothing."""
        settings, node = self._of(call)
        setup = settings.get("setup") or ()
        path = str(call.arguments.get("env_dir") or f"{FOLDER}/{call.arguments['name']}")
        call.progress(node.name, "looking for a Python for the environment")

        def plan(connection: Connection) -> dict[str, Any]:
            wanted = settings.get("python") or ""
            base = find_base(connection, node.name, wanted, setup, self._runtime.monotonic)
            script = NodeScript(connection, node.name, base.path, self._steps(call, node), setup)
            request = {"path": path, "mib": ESTIMATE}
            answer = checked("plan", node.name, lambda: script.run("plan", request))
            return {**answer, "node": node.name, "setup": base.source == "setup"}

        answer: dict[str, Any] = await node.over_connection(call, plan)
        if fault := _unsuitable(answer):
            raise AgentError(
                f"{answer['python']} {fault}",
                hop=node.name,
                remedy="Choose another Python of the node with --python PATH, or with --setup LINE.",
            )
        return answer

    async def op_create_environment(self, call: Call) -> dict[str, Any]:
        """Make the environment of a `plan` from the `wheels` in a local `folder`. Return {python, path, …}."""
        settings, node = self._of(call)
        plan, wheels = call.arguments["plan"], call.arguments["wheels"]
        folder = Path(str(call.arguments["folder"]))
        await asyncio.to_thread(_check_wheels, folder, wheels)
        request = {
            "path": plan["path"],
            "uv": plan["uv"],
            "venv": plan["venv"],
            "id": self._runtime.new_id(),
            "wheels": wheels,
            "packages": call.arguments["packages"],
            "mib": call.arguments["mib"],
        }
        send = _sender(folder, wheels, self._steps(call, node))
        return await self._run(
            call, node, plan["python"], "create", request, settings.get("setup") or (), send
        )

    async def op_environment_status(self, call: Call) -> dict[str, Any]:
        """Return {id, there, packages, added, mib, users, node} of the environment `path` on the node.

        Among its users are also kernels on other nodes with a Python at that path, which may share the folder.
        """
        _, node = self._of(call)
        path = str(call.arguments["path"])
        answer = await self._run(call, node, path, "status", {"path": path})
        users = [one for one in answer.get("users", []) if one.get("kernel")]
        known = {one["kernel"] for one in users}
        here = [
            {"pid": 0, "kernel": remote.kernel_id, "command": ""}
            for remote in self._kernels
            if str(remote.settings.get("python")).startswith(f"{path}/") and remote.kernel_id not in known
        ]
        return {**answer, "users": [*users, *here], "node": node.name}

    async def op_remove_environment(self, call: Call) -> dict[str, Any]:
        """Remove the environment `path` with that `env_id` from the node, unless something uses it."""
        _, node = self._of(call)
        path = str(call.arguments["path"])
        await self._nodes.close_idle_links(path)  # their agents run with the environment's Python
        return await self._run(call, node, path, "remove", {"path": path, "id": call.arguments["env_id"]})

    # -------------------------------------------------------------------------------------- helpers

    def _of(self, call: Call) -> tuple[dict[str, Any], Node]:
        settings = call.arguments["settings"]
        return settings, self._nodes.of(settings)

    @staticmethod
    def _steps(call: Call, node: Node) -> Callable[[str], None]:
        return lambda text: call.progress(node.name, text)

    async def _run(
        self,
        call: Call,
        node: Node,
        python: str,
        verb: str,
        request: dict[str, Any],
        setup: Sequence[str] = (),
        send: Send | None = None,
    ) -> dict[str, Any]:
        """Run the script. If the client leaves meanwhile, end it."""
        running: list[NodeScript] = []

        def work(connection: Connection) -> dict[str, Any]:
            program = python if verb in ("plan", "create") else base_of(connection, node.name, python)
            running.append(NodeScript(connection, node.name, program, self._steps(call, node), setup))
            return checked(verb, node.name, lambda: running[-1].run(verb, request, send))

        try:
            return await node.over_connection(call, work)
        except asyncio.CancelledError:
            for script in running:
                await asyncio.to_thread(script.close)
            raise


def _unsuitable(plan: dict[str, Any]) -> str:
    """Return why no environment can be made from this Python, or ""."""
    if plan["implementation"] != "cpython":
        return f"is {plan['implementation']}, for which there are few wheels; CPython is needed"
    if plan["bits"] != 64:
        return "is a 32-bit program; a 64-bit one is needed"
    if not plan["libc"]:
        return "runs with an unknown C library, so that no wheels can be chosen for it"
    if not plan["venv"] and not plan["uv"]:
        return "has no module venv (Debian: python3-venv), and there is no uv"
    return ""


def _check_wheels(folder: Path, wheels: Any) -> None:
    """Raise HubError if these are not wheels in that folder."""
    if not isinstance(wheels, list) or len(wheels) > _MAX_WHEELS:
        raise HubError("the list of wheels is malformed")
    for wheel in wheels:
        name = str(wheel["name"])
        if not re.fullmatch(r"[A-Za-z0-9_.+!-]+\.whl", name) or not (folder / name).is_file():
            raise HubError(f"there is no wheel {name!r} in {folder}")


def _sender(folder: Path, wheels: list[dict[str, Any]], step: Callable[[str], None]) -> Send:
    """Return the function that writes the wheels, one after the other."""
    total = sum(int(wheel["size"]) for wheel in wheels)

    def send(stream: CommandStream, written: Callable[[], None]) -> None:
        sent = 0
        for wheel in wheels:
            try:
                data = (folder / wheel["name"]).read_bytes()
            except OSError:  # the client has left, and removed it
                return stream.close()
            for start in range(0, len(data), _BLOCK):
                block = data[start : start + _BLOCK]
                stream.write(block)
                written()
                before, sent = sent, sent + len(block)
                if before * 10 // total < sent * 10 // total:  # often enough
                    step(f"sending packages: {sent / 2**20:.1f} of {total / 2**20:.1f} MiB")

    return send
