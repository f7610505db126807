"""The operation `check`: connects to a node step by step, and reports the time of each step and the first failure.

It opens a connection of its own, as host keys, key files and rules may have changed since the shared one was opened. If
a hop asks for a code while the shared connection is open, the user is not asked: the other steps are checked over the
shared connection, and the rows say which hops were not checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ...errors import AgentError, GpuKernelError
from ...wire import DEFAULT_GPUS
from ..rpc import Call
from .node import Node
from .nodes import Nodes

T = TypeVar("T")


async def check(nodes: Nodes, settings: dict[str, Any], call: Call) -> list[dict[str, Any]]:
    """Return [{"step", "hop", "ok", "checked", "seconds", "message", "remedy"}] up to the first step that fails."""
    shared = nodes.of(settings)
    own = nodes.separate(settings, asks=not shared.alive)
    report = _Report(own.name, call)
    try:
        node = own if await _connect(report, own, shared, call) else shared
        await _check_node(report, node, settings, call)
    except GpuKernelError:
        pass  # the last row reports it
    finally:
        await own.close()
    return report.rows


class _Report:
    """The rows so far."""

    def __init__(self, hop: str, call: Call) -> None:
        self.rows: list[dict[str, Any]] = []
        self._hop = hop
        self._call = call

    def add(
        self, step: str, hop: str, seconds: float, message: str = "", remedy: str = "", ok: bool = True
    ) -> None:
        row = {
            "step": step,
            "hop": hop,
            "ok": ok,
            "checked": True,
            "seconds": round(seconds, 3),
            "message": message,
            "remedy": remedy,
        }
        self.rows.append(row)

    def mark_unchecked(self, error: GpuKernelError) -> None:
        """Change the last row, which failed: this hop and those behind it are not checked."""
        self.rows[-1] |= {
            "ok": True,
            "checked": False,
            "message": f"not checked, nor are the hops behind it: {error.cause}",
            "remedy": "",
        }

    async def step(self, name: str, work: Awaitable[T], message: Callable[[T], str]) -> T:
        """Run one step and add its row. A GpuKernelError is added as its row, and raised again."""
        self._call.progress(self._hop, name)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            value = await work
        except GpuKernelError as error:
            error.fill_in("NAME", str(self._call.arguments.get("name") or ""))
            *completed, failed = error.steps or [(error.hop or self._hop, name, clock() - began)]
            for hop, step, seconds in completed:
                self.add(step, hop, seconds)
            hop, step, seconds = failed
            speaker = "" if error.hop in ("", hop) else f"{error.hop}: "  # a jump host that refuses
            self.add(step, hop, seconds, f"{speaker}{error.cause}", error.remedy, ok=False)
            raise
        self.add(name, self._hop, clock() - began, message(value))
        return value


async def _connect(report: _Report, own: Node, shared: Node, call: Call) -> bool:
    """Connect `own`, and return True. If only the user could, return False: then `shared` is connected."""
    try:
        connection = await report.step("connect", own.connected(call), lambda _: "")
    except GpuKernelError as error:
        if not (error.login and shared.alive):
            raise
        report.mark_unchecked(error)
        message = "the other steps are checked over the open connection"
        await report.step("connect", shared.connected(call), lambda _: message)
        return False
    total = report.rows.pop()
    for hop, step, seconds in connection.steps:
        report.add(step, hop, seconds)
    report.rows.append(total)
    return True


async def _check_node(report: _Report, node: Node, settings: dict[str, Any], call: Call) -> None:
    found, _ = await report.step(
        "python",
        node.find_pythons(settings.get("python"), call),
        lambda done: (
            f"{done[0].python.path} ({done[0].python.version}, ipykernel {done[0].python.ipykernel})"
        ),
    )
    python = found.python.path
    await report.step("agent", node.link(python, call), lambda _: "answers")
    if int(settings.get("gpus", DEFAULT_GPUS)):
        await report.step(
            "gpus", node.request(python, call, "gpus", 60), lambda answer: _gpus(answer["gpus"])
        )


def _gpus(gpus: list[dict[str, Any]]) -> str:
    if not gpus:
        raise AgentError("this node has no GPU", remedy="Use a node with GPUs, or --gpus 0.")
    free = sum(bool(gpu["free"]) for gpu in gpus)
    return f"{free} of {len(gpus)} free"
