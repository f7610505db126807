"""The `check` verb: the whole way, step by step, timed; what fails says why and what to do. Starts
nothing that stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..errors import AgentError, GpuKernelError
from .faces import Call
from .nodes import Node
from .probe import find_pythons

T = TypeVar("T")


async def check(node: Node, settings: dict[str, Any], call: Call) -> list[dict[str, Any]]:
    """[{"step", "hop", "ok", "seconds", "message", "remedy"}], ending with the first step that fails."""
    rows = _Rows(node.name, call)
    try:
        await _walk(rows, node, settings, call)
    except GpuKernelError:
        pass  # the last row tells it
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
            "seconds": round(seconds, 3),
            "message": message,
            "remedy": remedy,
        }
        self.rows.append(row)

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
            self.add(step, hop, seconds, error.cause, error.remedy, ok=False)
            raise
        self.add(name, self._hop, time.monotonic() - began, message(value))
        return value


async def _walk(rows: _Rows, node: Node, settings: dict[str, Any], call: Call) -> None:
    fresh = not node.alive
    connection = await rows.step(
        "connect", node.connected(call), lambda _: "" if fresh else "already connected"
    )
    for hop, step, seconds in connection.hops:
        rows.add(step, hop, seconds)
    wanted = settings.get("python")
    found = await rows.step(
        "python",
        asyncio.to_thread(find_pythons, connection, node.name, wanted),
        lambda found: f"{found.python.path} ({found.python.version}, ipykernel {found.python.ipykernel})",
    )
    link = await rows.step("agent", node.link(found.python.path, call), lambda _: "answers")
    if int(settings.get("gpus", 1)):
        await rows.step("gpus", link.request("gpus", timeout=60), lambda answer: _gpus(answer["gpus"]))


def _gpus(gpus: list[dict[str, Any]]) -> str:
    if not gpus:
        raise AgentError("this node has no GPU", remedy="Use a node with GPUs, or --gpus 0.")
    free = sum(bool(gpu["free"]) for gpu in gpus)
    return f"{free} of {len(gpus)} free"
