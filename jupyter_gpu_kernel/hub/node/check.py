"""The `check` verb: the whole way, step by step, timed; what fails says why and what to do. Nothing of it stays.

It goes the way by a connection of its own: the one that is open was made when host keys, key files and rules may have
been others. Where a machine asks for a code, the owner is asked only if no connection is open; else the rest is checked
over that one, and the rows say what was not.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ...errors import AgentError, GpuKernelError
from ...wire import DEFAULT_GPUS
from ..rpc import Call
from .node import Node, Nodes

T = TypeVar("T")


async def check(nodes: Nodes, settings: dict[str, Any], call: Call) -> list[dict[str, Any]]:
    """[{"step", "hop", "ok", "checked", "seconds", "message", "remedy"}], ending with the first step that fails."""
    shared = nodes.of(settings)
    own = nodes.apart(settings, asks=not shared.alive)
    rows = _Rows(own.name, call)
    try:
        node = own if await _connect(rows, own, shared, call) else shared
        await _look(rows, node, settings, call)
    except GpuKernelError:
        pass  # the last row tells it
    finally:
        await own.close()
    return rows.rows


class _Rows:
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

    def leave_out(self, error: GpuKernelError) -> None:
        """The last row, which failed, was not checked; nor was what comes behind it."""
        self.rows[-1] |= {
            "ok": True,
            "checked": False,
            "message": f"not checked, nor are the hops behind it: {error.cause}",
            "remedy": "",
        }

    async def step(self, name: str, work: Awaitable[T], message: Callable[[T], str]) -> T:
        """Runs one step; a GpuKernelError becomes its row and is raised again."""
        self._call.progress(self._hop, name)
        began = time.monotonic()
        try:
            value = await work
        except GpuKernelError as error:
            *made, failed = error.steps or [(error.hop or self._hop, name, time.monotonic() - began)]
            for hop, step, seconds in made:
                self.add(step, hop, seconds)
            hop, step, seconds = failed
            who = "" if error.hop in ("", hop) else f"{error.hop}: "  # the jump host that refuses
            self.add(step, hop, seconds, f"{who}{error.cause}", error.remedy, ok=False)
            raise
        self.add(name, self._hop, time.monotonic() - began, message(value))
        return value


async def _connect(rows: _Rows, own: Node, shared: Node, call: Call) -> bool:
    """Whether `own` is connected now; otherwise the owner would have to type something, and `shared` is."""
    try:
        connection = await rows.step("connect", own.connected(call), lambda _: "")
    except GpuKernelError as error:
        if not (error.login and shared.alive):
            raise
        rows.leave_out(error)
        await rows.step(
            "connect", shared.connected(call), lambda _: "the rest is checked over the open connection"
        )
        return False
    connect = rows.rows.pop()  # the sum of what was made for it
    for hop, step, seconds in connection.steps:
        rows.add(step, hop, seconds)
    rows.rows.append(connect)
    return True


async def _look(rows: _Rows, node: Node, settings: dict[str, Any], call: Call) -> None:
    found, _ = await rows.step(
        "python",
        node.pythons(settings.get("python"), call),
        lambda done: (
            f"{done[0].python.path} ({done[0].python.version}, ipykernel {done[0].python.ipykernel})"
        ),
    )
    python = found.python.path
    await rows.step("agent", node.link(python, call), lambda _: "answers")
    if int(settings.get("gpus", DEFAULT_GPUS)):
        await rows.step("gpus", node.request(python, call, "gpus", 60), lambda answer: _gpus(answer["gpus"]))


def _gpus(gpus: list[dict[str, Any]]) -> str:
    if not gpus:
        raise AgentError("this node has no GPU", remedy="Use a node with GPUs, or --gpus 0.")
    free = sum(bool(gpu["free"]) for gpu in gpus)
    return f"{free} of {len(gpus)} free"
