"""The operations `check` and `probe`.

`probe`, for the command `add`, connects to a node or to several, finds a Python with ipykernel, and reads the GPUs.

`check` connects to a node step by step, and reports the time of each step and the first failure. It opens a connection
of its own, as host keys, key files and rules may have changed since the shared one was opened. If a hop asks for a code
while the shared connection is open, the user is not asked: the other steps are checked over the shared connection, and
the rows say which hops were not checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ....errors import AgentError, AgentRefusal, GpuKernelError
from ...kernel_settings import KernelSettings, Spec
from ...rpc import Call
from ...transport.connection import Connection
from ..node import Node
from ..nodes import NodeRequest, Nodes, none_usable
from .find_python import FoundPythons

T = TypeVar("T")
_NEEDED = ("gpus", "min_memory", "gpu_type", "cwd", "code")
_REFUSED = ("cwd", "code")
"""Why the agent refuses an offer: no kernel with these settings can start."""


class Report:
    """The rows of one `check` so far."""

    def __init__(self, hop: str, call: Call) -> None:
        self.rows: list[dict[str, Any]] = []
        self._hop = hop
        self._call = call

    def add(
        self,
        step: str,
        seconds: float,
        message: str = "",
        remedy: str = "",
        *,
        hop: str = "",
        ok: bool = True,
    ) -> dict[str, Any]:
        """Add a row, and return it. `hop`: the node if it is empty."""
        row = {
            "step": step,
            "hop": hop or self._hop,
            "ok": ok,
            "checked": True,
            "seconds": round(seconds, 3),
            "message": message,
            "remedy": remedy,
        }
        self.rows.append(row)
        return row

    def mark_unchecked(self, error: GpuKernelError) -> None:
        """Change the last row, which failed: neither its hop nor the hops behind that are checked."""
        self.rows[-1] |= {
            "ok": True,
            "checked": False,
            "message": f"not checked, nor are the hops behind it: {error.cause}",
            "remedy": "",
        }

    async def step(self, name: str, work: Awaitable[T], message: Callable[[T], str]) -> T:
        """Run one step, add its row, and return its value. `message(value)` returns the row's text. A GpuKernelError of
        either is added as the row, and raised again."""
        self._call.progress(self._hop, name)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            value = await work
            self.add(name, clock() - began, message(value))
            return value
        except GpuKernelError as error:
            error.fill_in("NAME", str(self._call.arguments.get("name") or ""))
            *completed, failed = error.steps or [(error.hop or self._hop, name, clock() - began)]
            for hop, step, seconds in completed:
                self.add(step, seconds, hop=hop)
            hop, step, seconds = failed
            speaker = "" if error.hop in ("", hop) else f"{error.hop}: "  # a jump host that refuses
            self.add(step, seconds, f"{speaker}{error.cause}", error.remedy, hop=hop, ok=False)
            raise


MoreSteps = Callable[[Report, Node, KernelSettings], Awaitable[None]]
"""Steps on a connected node, with the settings and the Python that was found."""


async def check(
    nodes: Nodes, settings: KernelSettings, call: Call, more: MoreSteps | None = None
) -> list[dict[str, Any]]:
    """Return [{"step", "hop", "ok", "checked", "seconds", "message", "remedy"}] up to the first step that fails.

    more: These steps come instead of those that need the agent on the node.
    """
    shared = nodes.of(settings)
    own = nodes.separate(settings, asks=not shared.alive)
    node, report = own, Report(own.name, call)
    try:
        if not await _connect(report, own, shared, call):
            node = shared.with_own_link()
        python = await _check_python(report, node, settings, call)
        if more is not None:
            await more(report, node, settings.replace(python=python))
        else:
            await _check_node(report, node, settings, python, call)
    except GpuKernelError:
        pass  # the last row reports it
    finally:
        await node.close_link()
        await own.close()
    return report.rows


async def _connect(report: Report, own: Node, shared: Node, call: Call) -> bool:
    """Connect `own`, and return True. If only the user could, return False: then `shared` is connected."""
    try:
        connection = await report.step("connect", own.connected(call), _carried_by)
    except GpuKernelError as error:
        if not (error.login and shared.alive):
            raise
        report.mark_unchecked(error)
        message = "the other steps are checked over the open connection"
        await report.step("connect", shared.connected(call), lambda _: message)
        return False
    total = report.rows.pop()
    for hop, step, seconds in connection.steps:
        report.add(step, seconds, hop=hop)
    report.rows.append(total)
    return True


def _carried_by(connection: Connection) -> str:
    return f"over {connection.transport}" if connection.transport else ""


async def _check_python(report: Report, node: Node, settings: KernelSettings, call: Call) -> str:
    found, _ = await report.step(
        "python",
        node.find_pythons(settings.python, call, settings.setup),
        lambda done: (
            f"{done[0].python.path} ({done[0].python.version}, ipykernel {done[0].python.ipykernel})"
        ),
    )
    return str(found.python.path)


async def _check_node(report: Report, node: Node, settings: KernelSettings, python: str, call: Call) -> None:
    await report.step("agent", node.link(python, call), lambda _: "answers")
    if settings.gpus:
        asked = node.request(python, call, "gpus", 60)
        await report.step("gpus", asked, lambda answer: _gpus(answer["gpus"]))


def _gpus(gpus: list[dict[str, Any]]) -> str:
    if not gpus:
        raise AgentError("this node has no GPU", remedy="Use a node with GPUs, or --gpus 0.")
    free = sum(bool(gpu["free"]) for gpu in gpus)
    return f"{free} of {len(gpus)} free"


# --- the operation `probe`


async def probe(nodes: Nodes, settings: KernelSettings, call: Call) -> dict[str, Any]:
    """Return the Pythons, hops and GPUs of the node, and why it can never give a kernel what the settings request; for
    several hosts {"hosts": [{"host", …the same, or "error"}]}, if one of them can be used."""
    if not settings.hosts:
        return await _probe(nodes.of(settings), settings, call)
    request = NodeRequest("probe", asking=lambda node, spec, _: _probe(node, spec.settings, call))
    replies = await nodes.ask_each(call, request, [Spec(one) for one in settings.each_host()])
    errors = {one.node.name: one.error for one in replies if one.error is not None}
    if len(errors) == len(replies):
        raise none_usable(errors)
    found = [one.answer if one.error is None else {"error": one.error.to_json()} for one in replies]
    return {"hosts": [{"host": one.node.name, **more} for one, more in zip(replies, found, strict=True)]}


async def _probe(node: Node, settings: KernelSettings, call: Call) -> dict[str, Any]:
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
