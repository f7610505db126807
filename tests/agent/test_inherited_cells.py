"""What a successor concludes from the kernel's messages and the hub's list. No process is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest
from relays import Exchange
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent.failover import inherited_cells
from jupyter_gpu_kernel.agent.failover.inherited_cells import InheritedCells
from jupyter_gpu_kernel.agent.keeper.commands import UnansweredCell
from jupyter_gpu_kernel.agent.loop import Loop
from jupyter_gpu_kernel.wire.messages import Channel, Message


class Kernel:
    """A kernel that has been taken over; it replies to internal requests when `reply` is called."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop(RUNTIME)
        self.exchange = Exchange(folder)
        self.settled: List[bool] = []
        self.cells = InheritedCells(self.loop, self.exchange.relay, self.settled.append)

    def reply(self, begun: str) -> None:
        """Reply to all requests that the kernel has received, and let the loop's timers run."""
        requests, self.exchange.passed[:] = list(self.exchange.passed), []
        value: Any = {"status": "ok", "data": {"text/plain": begun}}
        for request in requests:
            content = {"status": "ok", "user_expressions": {"value": value}}
            parts = make("execute_reply", content, request.parts[0])
            self.exchange.relay.handle_kernel_message(Channel.SHELL, request.client, parts)
        self.loop.later(0, self.loop.stop)
        self.loop.run()


@pytest.mark.parametrize("listed_after", [0, 1, inherited_cells.QUIET_REPLIES])
def test_a_running_cell_keeps_the_kernel_busy_whenever_the_hub_lists_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed_after: int
) -> None:
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel = Kernel(tmp_path)
    cell = Message(Channel.SHELL, 1, make("execute_request", {"code": "train()"}))
    kernel.cells.observe(
        Message(Channel.IOPUB, 0, make("stream", {"name": "stdout", "text": ""}, cell.parts[0]))
    )
    kernel.cells.observe(
        Message(Channel.IOPUB, 0, make("status", {"execution_state": "busy"}, cell.parts[0]))
    )
    kernel.cells.kernel_ready()
    for turn in range(3 * inherited_cells.QUIET_REPLIES):
        if turn == listed_after:
            kernel.cells.set_unanswered([UnansweredCell(cell, "busy")], 1)
        kernel.reply(begun=str([cell.msg_id]))
    assert kernel.settled[-1] is True
    assert len(kernel.settled) == (2 if listed_after == inherited_cells.QUIET_REPLIES else 1)
    assert not kernel.exchange.passed, "the kernel is not asked any more, and the cell is not sent again"
