"""The operation `probe`: connects to a node or to several, finds a Python with ipykernel, and reads the GPUs."""

from __future__ import annotations

import asyncio
from typing import Any

from ....errors import AgentError, AgentRefusal, GpuKernelError
from ...kernel_settings import KernelSettings
from ...rpc import Call
from ...transport.connection import Connection
from ..hosts import none_usable
from ..node import Node
from ..nodes import Nodes
from .find_python import FoundPythons

_NEEDED = ("gpus", "min_memory", "gpu_type", "cwd", "code")
_REFUSED = ("cwd", "code")
"""Why the agent refuses an offer: no kernel with these settings can start."""


async def probe(nodes: Nodes, settings: KernelSettings, call: Call) -> dict[str, Any]:
    """Return the Pythons, hops and GPUs of the node, and why it can never give a kernel what the settings request; for
    several hosts {"hosts": [{"host", …the same, or "error"}]}, if one of them can be used."""
    if not settings.hosts:
        return await _probe(nodes, settings, call)
    probes = await asyncio.gather(*(_probe_host(nodes, one, call) for one in settings.each_host()))
    errors = {one["host"]: GpuKernelError.from_json(one["error"]) for one in probes if "error" in one}
    if len(errors) == len(probes):
        raise none_usable(errors)
    return {"hosts": probes}


async def _probe_host(nodes: Nodes, settings: KernelSettings, call: Call) -> dict[str, Any]:
    host = {"host": nodes.of(settings).name}
    try:
        return {**host, **await _probe(nodes, settings, call)}
    except GpuKernelError as error:
        return {**host, "error": error.to_json()}


async def _probe(nodes: Nodes, settings: KernelSettings, call: Call) -> dict[str, Any]:
    node = nodes.of(settings)
    found, connection = await node.find_pythons(settings.python, call, settings.setup)
    if found.node.setup_problem:
        raise AgentRefusal(f"the set-up lines fail: {found.node.setup_problem}", code="setup", hop=node.name)
    answer = answer_without_gpus(node, found, connection)
    call.progress(node.name, "starting the agent")
    await node.link(found.python.path, call)
    call.progress(node.name, "reading the state of the GPUs")
    needed = {key: getattr(settings, key) for key in _NEEDED}
    listed, offer = await asyncio.gather(
        _ask(node, found.python.path, call, "gpus"), _ask(node, found.python.path, call, "offer", **needed)
    )
    answer["gpus_error"] = listed.get("error") or offer.get("error")
    answer["gpus"] = listed.get("gpus", [])
    answer["gpus_problem"], answer["gpus_never"] = offer.get("problem", ""), offer.get("never", False)
    return answer


def answer_without_gpus(node: Node, found: FoundPythons, connection: Connection) -> dict[str, Any]:
    """Return the Pythons, the hops with the seconds of each step, and the route."""
    return {
        **found.to_json(),
        "hops": [dict(zip(("hop", "step", "seconds"), step, strict=True)) for step in connection.steps],
        "route": list(node.settings.route),
        "gpus": [],
        "gpus_error": None,
        "gpus_problem": "",
    }


async def _ask(node: Node, python: str, call: Call, do: str, **needed: Any) -> dict[str, Any]:
    """Return the reply, or {"error"}. Raises AgentRefusal if no kernel with these settings can start there."""
    try:
        return await node.request(python, call, do, 60, **needed)
    except AgentError as error:
        if isinstance(error, AgentRefusal) and error.code in _REFUSED:
            raise
        return {"error": error.cause}
