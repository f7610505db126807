"""The rows of `check`: one for each step, and a step that fails is reported with its remedy."""

from __future__ import annotations

import asyncio
from multiprocessing import Pipe
from typing import Any

import pytest

from jupyter_gpu_kernel.errors import AgentError
from jupyter_gpu_kernel.hub.client_connection import ClientConnection
from jupyter_gpu_kernel.hub.node.check.check import Report
from jupyter_gpu_kernel.hub.rpc import Call


class Deaf(ClientConnection):
    """A client that takes no progress."""

    def send(self, message: dict[str, Any]) -> None:
        """Send nothing."""


async def answer() -> int:
    return 0


def no_gpu(count: int) -> str:
    raise AgentError("this node has no GPU", remedy="Use a node with GPUs.")


def rows(*messages: Any) -> list[dict[str, Any]]:
    """The rows of steps whose answers have these texts, up to the first that fails."""

    async def steps() -> list[dict[str, Any]]:
        report = Report("gpu2", Call(Deaf(Pipe()[0]), {"id": 1, "op": "check"}))
        with pytest.raises(AgentError):
            for number, message in enumerate(messages):
                await report.step(f"step {number}", answer(), message)
        return report.rows

    return asyncio.run(steps())


def test_an_answer_that_is_an_error_is_the_last_row() -> None:
    first, last = rows(lambda count: "answers", no_gpu)
    assert (first["step"], first["ok"], first["message"]) == ("step 0", True, "answers")
    assert (last["step"], last["ok"], last["message"]) == ("step 1", False, "this node has no GPU")
    assert last["hop"] == "gpu2" and last["remedy"] == "Use a node with GPUs."
