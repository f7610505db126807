"""What a successor concludes from the kernel's messages and the hub's list. No process is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest
from relays import Exchange
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent import takeover
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
        self.exchange.on_message = self.cells.observe

    def shown(self, cell: Message) -> List[Any]:
        """What front ends have got of a cell, in order: states, output, and the status in the reply."""
        found = []
        for message in self.exchange.received:
            if message.parent_id == cell.msg_id:
                content = message.content()
                found.append(content.get("execution_state") or content.get("text") or content.get("status"))
        return found

    def settle(self, *begun: Message) -> None:
        """Reply until it is known what becomes of the cells. `begun`: those that the kernel lists."""
        self.cells.probe()
        while not self.settled:
            self.reply(str([cell.msg_id for cell in begun]))

    def reply(self, begun: str) -> None:
        """Reply to all requests that the kernel has received, and let the loop's timers run."""
        requests, self.exchange.passed[:] = list(self.exchange.passed), []
        value: Any = {"status": "ok", "data": {"text/plain": begun}}
        for request in requests:
            content = {"status": "ok", "user_expressions": {"value": value}}
            parts = make("execute_reply", content, request.parts[0])
            self.exchange.relay.handle_kernel_message(Channel.SHELL, request.client, parts)
            self.exchange.is_("idle", request.parts[0])
        self.loop.later(0, self.loop.stop)
        self.loop.run()


def unanswered(cell: Message, state: str) -> Dict[str, Any]:
    """Return a cell as the hub lists it. `state`: the last one that front ends have been sent."""
    return {"client": cell.client, "parts": [part.decode() for part in cell.parts], "state": state}


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
    kernel.cells.probe()
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
    kernel.cells.probe()
    kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy") for cell in (failed, aborted)]})
    while not kernel.settled:
        kernel.reply(begun=str([failed.msg_id]))
    replies = {
        one.parent_id: one.content() for one in kernel.exchange.received if one.msg_type == "execute_reply"
    }
    assert (
        replies[failed.msg_id]["ename"] == "KeeperError"
        and "result are lost" in replies[failed.msg_id]["evalue"]
    )
    assert replies[aborted.msg_id]["status"] == "aborted"
    assert not kernel.exchange.passed and kernel.settled == [False]


def test_a_cell_that_is_sent_after_the_list_does_not_overtake_one_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when hub and keeper were killed, and the listed cell has reached neither the keeper nor the kernel."""
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel = Kernel(tmp_path)
    older, newer, last = (
        Message(Channel.SHELL, 1, make("execute_request", {"code": code})) for code in "abc"
    )
    kernel.cells.set_unanswered({"cells": [unanswered(older, "?")]})
    assert kernel.cells.hold(newer)
    kernel.settle()
    assert [message.msg_id for message in kernel.exchange.passed] == [older.msg_id, newer.msg_id]
    assert not kernel.cells.hold(last)


def test_a_cell_that_the_kernel_aborted_is_aborted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub has the reply of the one that failed, so only the kernel's messages tell."""
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel = Kernel(tmp_path)
    cell = Message(Channel.SHELL, 1, make("execute_request", {"code": "b"}))
    kernel.cells.observe(
        Message(Channel.IOPUB, 0, make("status", {"execution_state": "idle"}, cell.parts[0]))
    )
    kernel.cells.probe()
    kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy")]})
    while not kernel.settled:
        kernel.reply(begun="[]")
    (reply,) = [one.content() for one in kernel.exchange.received if one.msg_type == "execute_reply"]
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
        {"cells": [{"client": 1, "parts": ['{"msg_id": "a"}', *["{}"] * 3], "state": 5}]},
        {"cells": [], "count": "many"},
    ],
)
def test_a_malformed_list_is_refused_as_a_whole(tmp_path: Path, command: Dict[str, Any]) -> None:
    kernel = Kernel(tmp_path)
    with pytest.raises((FieldError, MessageError)):
        kernel.cells.set_unanswered(command)
    assert not kernel.cells.listed and not kernel.exchange.relay.executions.pending_ids()


LOST = takeover.ENDED


def a_cell(code: str = "work()") -> Message:
    return Message(Channel.SHELL, 1, make("execute_request", {"code": code}))


@pytest.mark.parametrize("listed", ["first", "in between", "last"])
@pytest.mark.parametrize("idle_first", [True, False])
def test_a_cell_that_ends_before_it_could_be_notified_shows_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, idle_first: bool
) -> None:
    """It replies “ok”, and nobody had received the middle of its output."""
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel, cell = Kernel(tmp_path), a_cell()
    front = kernel.exchange
    ends = [
        lambda: front.is_("idle", cell.parts[0]),
        lambda: front.sends(Channel.SHELL, "execute_reply", {"status": "ok"}, cell.parts[0]),
    ]
    if listed == "first":
        kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy")]})
    front.sends(Channel.IOPUB, "stream", {"name": "stdout", "text": "end"}, cell.parts[0])
    ends.pop(0 if idle_first else 1)()
    if listed == "in between":
        kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy")]})
    ends.pop()()
    assert kernel.shown(cell) == ["end", LOST, "idle", "ok"]
    if listed == "last":
        kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy")]})
    kernel.settle(cell)
    assert kernel.shown(cell) == ["end", LOST, "idle", "ok"]


def test_a_cell_that_is_sent_again_and_has_ended_keeps_the_kernel_busy_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub does not know that the killed keeper had received it."""
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel, cell = Kernel(tmp_path), a_cell()
    assert kernel.cells.hold(cell)
    kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy")]})
    kernel.exchange.sends(Channel.SHELL, "execute_reply", {"status": "ok"}, cell.parts[0])
    kernel.exchange.is_("idle", cell.parts[0])
    kernel.settle(cell)
    assert kernel.settled == [False] and not kernel.exchange.relay.executions.pending_ids()
    assert kernel.shown(cell) == [LOST, "idle", "ok"]


def test_a_cell_whose_idle_nobody_received_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel, cells = Kernel(tmp_path), [a_cell(), a_cell()]
    kernel.cells.set_unanswered({"cells": [unanswered(cells[0], "busy")]})
    for cell in cells:
        kernel.exchange.sends(Channel.SHELL, "execute_reply", {"status": "ok"}, cell.parts[0])
        assert kernel.shown(cell) == []
    kernel.settle(*cells)
    for cell in cells:
        assert kernel.shown(cell) == [LOST, "idle", "ok"]


def test_a_lost_reply_is_an_error_in_the_cell_although_its_idle_was_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel, cell = Kernel(tmp_path), a_cell()
    kernel.cells.set_unanswered({"cells": [unanswered(cell, "busy")]})
    kernel.exchange.is_("idle", cell.parts[0])
    kernel.settle(cell)
    errors = [one.content()["ename"] for one in kernel.exchange.received if one.msg_type == "error"]
    assert errors == ["KeeperError"] and kernel.shown(cell)[:2] == [LOST, "idle"]


def test_only_cells_of_which_something_may_be_missing_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel, whole, running, ended = Kernel(tmp_path), a_cell(), a_cell(), a_cell()
    front, reported = kernel.exchange, takeover.RUNNING
    front.is_("busy", whole.parts[0])
    front.is_("idle", whole.parts[0])
    front.sends(Channel.IOPUB, "stream", {"name": "stderr", "text": f"\n{reported}\n"}, running.parts[0])
    front.is_("idle", running.parts[0])
    front.is_("idle", make("kernel_info_request", {})[0])
    kernel.settle(whole, running, ended)
    for text in ("a thread's", "more"):
        for cell in (whole, running, ended):
            front.sends(Channel.IOPUB, "stream", {"name": "stdout", "text": text}, cell.parts[0])
    assert kernel.shown(whole) == ["busy", "idle", "a thread's", "more"]
    assert kernel.shown(running) == [f"\n{reported}\n", "idle", "a thread's", "more"]
    assert kernel.shown(ended) == [LOST, "a thread's", "more"]
    assert len([one for one in front.received if one.content().get("text") == LOST]) == 1


def test_output_of_threads_keeps_no_cell_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may print without end; cells that the hub sends wait until the kernel is known to run none."""
    monkeypatch.setattr(inherited_cells, "INTERVAL", 0.0)
    kernel, cell = Kernel(tmp_path), a_cell()
    kernel.cells.set_unanswered({"cells": []})
    kernel.cells.probe()
    for _ in range(3 * inherited_cells.QUIET_REPLIES):
        kernel.exchange.sends(Channel.IOPUB, "stream", {"name": "stdout", "text": "."}, cell.parts[0])
        kernel.reply(str([cell.msg_id]))
    assert kernel.settled == [False]


def test_an_answer_waits_for_what_the_kernel_published_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, results = Exchange(tmp_path), []  # type: ignore[var-annotated]
    exchange.relay.internal_requests.evaluate("1", results.append, after_idle=True)
    exchange.relay.internal_requests.evaluate("2", results.append)
    for request in exchange.passed:
        content = {"status": "ok", "user_expressions": {"value": request.content()["user_expressions"]}}
        exchange.sends(Channel.SHELL, "execute_reply", content, request.parts[0])
    assert results == [{"value": "2"}]
    exchange.is_("idle", exchange.passed[0].parts[0])
    assert results == [{"value": "2"}, {"value": "1"}]
