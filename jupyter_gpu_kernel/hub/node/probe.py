"""The operation `probe`: connects to a node or to several, finds a Python with ipykernel, and reads the GPUs."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import AgentError, GpuKernelError
from ..rpc import Call
from .hosts import each_host, none_usable
from .nodes import Nodes

_NEEDED = ("gpus", "min_memory", "gpu_type")


async def probe(nodes: Nodes, settings: dict[str, Any], call: Call) -> dict[str, Any]:
    """Return the Pythons, hops and GPUs of the node, and why it can never give a kernel what the settings request; for
    several hosts {"hosts": [{"host", …the same, or "error"}]}, if one of them can be used."""
    if not settings.get("hosts"):
        return await _probe(nodes, settings, call)
    probes = await asyncio.gather(*(_probe_host(nodes, one, call) for one in each_host(settings)))
    errors = {one["host"]: GpuKernelError.from_json(one["error"]) for one in probes if "error" in one}
    if len(errors) == len(probes):
        raise none_usable(errors)
    return {"hosts": probes}


async def _probe_host(nodes: Nodes, settings: dict[str, Any], call: Call) -> dict[str, Any]:
    host = {"host": nodes.of(settings).name}
    try:
        return {**host, **await _probe(nodes, settings, call)}
    except GpuKernelError as error:
        return {**host, "error": error.to_json()}


async def _probe(nodes: Nodes, settings: dict[str, Any], call: Call) -> dict[str, Any]:
    node = nodes.of(settings)
    found, connection = await node.find_pythons(settings.get("python"), call, settings.get("setup") or ())
    answer = {
        **found.to_json(),
        "hops": [dict(zip(("hop", "step", "seconds"), step, strict=True)) for step in connection.steps],
        "route": list(node.settings.route),
        "gpus": [],
        "gpus_error": None,
        "gpus_problem": "",
    }
    call.progress(node.name, "starting the agent")
    await node.link(found.python.path, call)
    call.progress(node.name, "reading the state of the GPUs")
    needed = {key: settings[key] for key in _NEEDED if key in settings}
    asked = [node.request(found.python.path, call, "gpus", 60)]
    if settings.get("gpus"):
        asked.append(node.request(found.python.path, call, "offer", 60, **needed))
    try:
        listed, *offers = await asyncio.gather(*asked)
        answer["gpus"] = listed["gpus"]
        answer["gpus_problem"] = "".join(offer.get("problem", "") for offer in offers)
    except AgentError as error:
        answer["gpus_error"] = error.cause
    return answer
