"""The rows that the operation `check` returns: one for each step, with its time, and a remedy where it failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ....errors import GpuKernelError
from ...rpc import Call

T = TypeVar("T")


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
