"""The operation `check`: connects to a node step by step, and reports the time of each step and the first failure.

It opens a connection of its own, as host keys, key files and rules may have changed since the shared one was opened. If
a hop asks for a code while the shared connection is open, the user is not asked: the other steps are checked over the
shared connection, and the rows say which hops were not checked.

With `gpu`, the node is asked about its driver and about each framework, too; gpu_verdicts.py says what the answers
mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ....errors import AgentError, GpuKernelError
from ...kernel_settings import KernelSettings
from ...rpc import Call
from ...transport.connection import Connection
from ..node import Node
from ..nodes import Nodes
from .check_report import Report
from .gpu_verdicts import FRAMEWORKS, StackVerdict, conclude, judge_driver, judge_framework

LIMIT = 150.0
"""Seconds that a framework may take: a first import from a slow file system takes a minute."""
TIMEOUT = LIMIT + 180.0
"""Seconds for one request: set-up lines, the search for a free GPU, and one framework."""


MoreSteps = Callable[[Report, Node, KernelSettings], Awaitable[None]]
"""Steps on a connected node, with the settings and the Python that was found."""


async def check(
    nodes: Nodes, settings: KernelSettings, call: Call, gpu: bool = False, more: MoreSteps | None = None
) -> list[dict[str, Any]]:
    """Return [{"step", "hop", "ok", "checked", "seconds", "message", "remedy"}] up to the first step that fails.

    gpu: Also check whether the Python's frameworks can use the GPUs; these rows have "facts", too. `more`: these steps
    come instead of those that need the agent on the node.
    """
    shared = nodes.of(settings)
    own = nodes.separate(settings, asks=not shared.alive)
    node, report = own, Report(own.name, call)
    try:
        if not await _connect(report, own, shared, call):
            node = shared.with_own_link()
        python = await _check_python(report, node, settings, call)
        if more is not None:
            await more(report, node, settings._replace(python=python))
        else:
            await _check_node(report, node, settings, python, call, gpu)
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


async def _check_node(
    report: Report, node: Node, settings: KernelSettings, python: str, call: Call, gpu: bool
) -> None:
    await report.step("agent", node.link(python, call), lambda _: "answers")
    try:
        await _check_gpus(report, node, settings, python, call)
    except AgentError:  # what the node says of its driver and of the frameworks may tell why
        if not gpu:
            raise
    if gpu:
        await _check_stack(report, node, settings, python, call)


async def _check_gpus(report: Report, node: Node, settings: KernelSettings, python: str, call: Call) -> None:
    if settings.gpus:
        asked = node.request(python, call, "gpus", 60)
        await report.step("gpus", asked, lambda answer: _gpus(answer["gpus"]))


def _gpus(gpus: list[dict[str, Any]]) -> str:
    if not gpus:
        raise AgentError("this node has no GPU", remedy="Use a node with GPUs, or --gpus 0.")
    free = sum(bool(gpu["free"]) for gpu in gpus)
    return f"{free} of {len(gpus)} free"


async def _check_stack(report: Report, node: Node, settings: KernelSettings, python: str, call: Call) -> None:
    """Add a row for the driver, one for each framework that is installed, and the verdict."""
    sent = settings._replace(python=python).to_json()

    def ask(part: str) -> Awaitable[dict[str, Any]]:
        return node.request(python, call, "stack", TIMEOUT, part=part, limit=LIMIT, settings=sent)

    def add(step: str, verdict: StackVerdict, seconds: float, facts: dict[str, Any]) -> None:
        row = report.add(step, seconds, verdict.message, verdict.remedy, ok=verdict.ok)
        row |= {"checked": verdict.checked, "facts": facts}

    node_answer, seconds = await report.attempt("driver", ask("node"), shown="driver and Python packages")
    driver = judge_driver(node_answer)
    add("driver", driver, seconds, {key: node_answer.get(key) for key in ("driver", "cuda", "gpus")})
    verdicts: dict[str, StackVerdict] = {}
    for name in FRAMEWORKS:
        if name in node_answer.get("installed", ()):
            shown = f"importing {name} and multiplying matrices"
            answer, seconds = await report.attempt(name, ask(name), shown)
            verdicts[name] = judge_framework(name, python, node_answer.get("cuda", ""), answer)
            add(name, verdicts[name], seconds, answer)
    add("verdict", conclude(verdicts, python, driver), 0.0, {})
