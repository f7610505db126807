"""What was missed: kept by cell and in order, within its bound, known by the cell's id."""

from __future__ import annotations

import json
from typing import Any, Dict, Tuple

from jupyter_gpu_kernel.agent.missed import Missed
from jupyter_gpu_kernel.wire.jupyter import make
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(code: str, cell_id: str = "") -> Message:
    return Message(Channel.SHELL, 1, make("execute_request", {"code": code}, metadata={"cellId": cell_id}))


def answer(to: Message, msg_type: str, content: Dict[str, Any]) -> Message:
    channel = Channel.SHELL if msg_type == "execute_reply" else Channel.IOPUB
    return Message(channel, 1, make(msg_type, content, to.parts[0]))


def texts(parts: Tuple[bytes, ...]) -> str:
    return str(json.loads(parts[3].decode())["text"])


def test_outputs_are_kept_by_cell_in_order_with_how_it_ended() -> None:
    missed, one, two = Missed(), request("one()", "a"), request("two()", "b")
    missed.expect(one)
    missed.expect(two)
    assert missed.cells == []
    for n in range(3):
        missed.take(answer(one, "stream", {"name": "stdout", "text": str(n)}))
    missed.take(answer(one, "execute_reply", {"status": "ok", "execution_count": 5}))
    missed.take(answer(two, "stream", {"name": "stdout", "text": "x"}))
    first, second = missed.cells
    assert [texts(parts) for parts in first.outputs] == ["0", "1", "2"]
    assert (first.code, first.cell_id, first.status, first.count) == ("one()", "a", "ok", 5)
    assert (second.summary()["status"], second.cell_id) == ("running", "b")


def test_what_was_seen_goes_but_a_running_cell_is_still_known() -> None:
    missed, done, running = Missed(), request("done"), request("running")
    for cell in (done, running):
        missed.expect(cell)
        missed.take(answer(cell, "stream", {"name": "stdout", "text": "x"}))
    missed.take(answer(done, "execute_reply", {"status": "ok"}))
    missed.clear()
    assert missed.cells == []
    assert missed.knows(str(running.header()["msg_id"])) and not missed.knows(str(done.header()["msg_id"]))


def test_beyond_the_bound_the_oldest_cells_outputs_go_and_that_is_said() -> None:
    missed, old, new = Missed(cap=3000), request("old"), request("new")
    for cell in (old, new):
        missed.take(answer(cell, "execute_input", {"code": "c"}))
        missed.take(answer(cell, "stream", {"name": "stdout", "text": "x" * 2000}))
    first, second = missed.cells[0] if len(missed.cells) == 2 else None, missed.cells[-1]
    assert len(second.outputs) == 1 and not second.dropped
    assert first is None or first.dropped


def test_messages_without_a_cell_are_passed_over() -> None:
    missed = Missed()
    missed.take(Message(Channel.IOPUB, 0, make("status", {"execution_state": "idle"})))
    missed.take(Message(Channel.IOPUB, 0, (b"no json",)))
    assert missed.cells == []
