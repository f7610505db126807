"""What a successor concludes from the kernel's messages and the hub's list. No process is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest
from relays import Exchange
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent.failover import inherited_cells
from jupyter_gpu_kernel.agent.failover.inherited_cells import InheritedCells
from jupyter_gpu_kernel.agent.loop import Loop
from jupyter_gpu_kernel.wire.fields import FieldError
from jupyter_gpu_kernel.wire.messages import Channel, Message, MessageError


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


def unanswered(cell: Message, state: str) -> Dict[str, Any]:
    """Return a cell as the hub lists it. `state`: the last one that front ends have been sent."""
    return {"client": cell.client, "parts": [part.decode() for part in cell.parts], "said": state}


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
            kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy")], "count": 1})
        kernel.reply(begun=str([cell.msg_id]))
    assert kernel.settled[-1] is True
    assert len(kernel.settled) == (2 if listed_after == inherited_cells.QUIET_REPLIES else 1)
    assert not kernel.exchange.passed, "the kernel is not asked any more, and the cell is not sent again"


def test_a_cell_whose_reply_went_to_the_killed_keeper_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one behind it, which the kernel aborted, is aborted here as well; it is not sent to the kernel again."""
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel = Kernel(tmp_path)
    failed, aborted = (Message(Channel.SHELL, 1, make("execute_request", {"code": code})) for code in "ab")
    for cell in (failed, aborted):
        status = make("status", {"execution_state": "idle"}, cell.parts[0])
        kernel.cells.observe(Message(Channel.IOPUB, 0, status))
    kernel.cells.kernel_ready()
    kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy") for cell in (failed, aborted)]})
    while not kernel.settled:
        kernel.reply(begun=str([failed.msg_id]))
    replies = {
        one.parent_id: one.content() for one in kernel.exchange.heard if one.msg_type == "execute_reply"
    }
    assert (
        replies[failed.msg_id]["ename"] == "KeeperError"
        and "result are lost" in replies[failed.msg_id]["evalue"]
    )
    assert replies[aborted.msg_id]["status"] == "aborted"
    assert not kernel.exchange.passed and kernel.settled == [False]


def test_a_cell_that_the_kernel_aborted_is_aborted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub has the reply of the one that failed, so only the kernel's messages tell."""
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel = Kernel(tmp_path)
    cell = Message(Channel.SHELL, 1, make("execute_request", {"code": "b"}))
    kernel.cells.observe(
        Message(Channel.IOPUB, 0, make("status", {"execution_state": "idle"}, cell.parts[0]))
    )
    kernel.cells.kernel_ready()
    kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy")]})
    while not kernel.settled:
        kernel.reply(begun="[]")
    (reply,) = [one.content() for one in kernel.exchange.heard if one.msg_type == "execute_reply"]
    assert reply["status"] == "aborted" and not kernel.exchange.passed


@pytest.mark.parametrize(
    "command",
    [
        {},
        {"cells": 5},
        {"cells": [5]},
        {"cells": [{"client": -1, "parts": ["{}"] * 4}]},
        {"cells": [{"client": 1, "parts": ["{}"]}]},
        {"cells": [{"client": 1, "parts": ["[]"] * 4}]},
        {"cells": [{"client": 1, "parts": ['{"msg_id": "a"}', *["{}"] * 3], "said": 5}]},
        {"cells": [], "count": "many"},
    ],
)
def test_a_malformed_list_is_refused_as_a_whole(tmp_path: Path, command: Dict[str, Any]) -> None:
    kernel = Kernel(tmp_path)
    with pytest.raises((FieldError, MessageError)):
        kernel.cells.set_unanswered(command)
    assert not kernel.cells.listed and not kernel.exchange.relay.executions.pending_ids()
