"""Answers in the kernel's place: one busy, one reply, one idle, whatever the kernel has said before."""

from __future__ import annotations

import json
from typing import Any, List, Tuple

import pytest
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.wire.kernel_messages.answers import MAX_REQUESTS, Answers
from jupyter_gpu_kernel.wire.messages import Channel, Message

CLIENT = 7


class Front:
    """What a front end hears, from the kernel and in its place."""

    def __init__(self) -> None:
        self.received: List[Tuple[str, Any]] = []
        self.answers = Answers(RUNTIME)

    def gets(self, messages: List[Message]) -> None:
        for message in messages:
            assert (message.channel is Channel.IOPUB) == (not message.msg_type.endswith("_reply"))
            assert message.client == (0 if message.channel is Channel.IOPUB else CLIENT)
            content = message.content()
            detail = content.get("execution_state", content.get("execution_count", content.get("status")))
            self.received.append((message.msg_type, detail))

    def fails(self, request: Message) -> None:
        self.gets(self.answers.fail(request, "E", "why"))

    def kernel(self, request: Message, msg_type: str, **content: Any) -> None:
        channel = Channel.SHELL if msg_type.endswith("_reply") else Channel.IOPUB
        client = 0 if channel is Channel.IOPUB else CLIENT
        message = Message(channel, client, make(msg_type, content, request.parts[0]))
        if self.answers.observe(message):
            self.gets([message])


def request(msg_type: str = "execute_request", **content: Any) -> Message:
    return Message(Channel.SHELL, CLIENT, make(msg_type, dict({"code": "c", "silent": False}, **content)))


@pytest.fixture
def front() -> Front:
    return Front()


BUSY, IDLE, ERROR = ("status", "busy"), ("status", "idle"), ("error", None)


def test_a_cell_that_waits_here_and_runs_in_the_kernel_is_busy_once(front: Front) -> None:
    cell = request()
    front.gets(front.answers.begin(cell))
    front.kernel(cell, "status", execution_state="busy")
    front.kernel(cell, "execute_input", code="c", execution_count=1)
    front.kernel(cell, "status", execution_state="idle")
    front.kernel(cell, "execute_reply", status="ok", execution_count=1)
    assert front.received == [BUSY, ("execute_input", 1), IDLE, ("execute_reply", 1)]


def test_a_cell_that_fails_here_has_an_input_and_the_next_number(front: Front) -> None:
    before = request()
    front.kernel(before, "execute_reply", status="ok", execution_count=6)
    front.received.clear()
    front.fails(request())
    assert front.received == [BUSY, ("execute_input", 7), ERROR, ("execute_reply", 7), IDLE]
    assert front.answers.reserved == 7


def test_a_reply_without_a_number_of_its_own_does_not_set_the_count_back(front: Front) -> None:
    """The kernel answers code of a front end's own with the number of the cell before."""
    for count in (6, 5):
        front.kernel(request(), "execute_reply", status="ok", execution_count=count)
    front.fails(request())
    assert front.answers.reserved == 7


def test_another_kernel_begins_to_count_anew_and_is_busy_with_nothing(front: Front) -> None:
    cell = request()
    front.kernel(cell, "status", execution_state="busy")
    front.kernel(cell, "execute_reply", status="ok", execution_count=6)
    front.answers.clear()
    assert front.answers.begin(cell)
    front.fails(request())
    assert front.answers.reserved == 1


def test_another_requests_states_are_not_those_of_a_cell_with_the_same_msg_id(front: Front) -> None:
    """A KernelManager and its client have one session, and count their messages each by itself."""
    cell = request()
    header = json.dumps(dict(cell.header(), msg_type="interrupt_request")).encode()
    interrupt = Message(Channel.CONTROL, CLIENT, (header, *cell.parts[1:]))
    front.gets(front.answers.begin(cell))
    front.kernel(interrupt, "status", execution_state="busy")
    front.kernel(interrupt, "status", execution_state="idle")
    assert front.received == [BUSY, BUSY, IDLE] and not front.answers.begin(cell)


def test_a_status_without_a_request_is_always_news(front: Front) -> None:
    """A thread of the user's may make the kernel say so."""
    busy = Message(Channel.IOPUB, 0, make("status", {"execution_state": "busy"}))
    assert [front.answers.observe(busy) for _ in range(2)] == [True, True]


def test_what_is_no_users_cell_takes_no_number(front: Front) -> None:
    front.fails(request(silent=True))
    assert front.received == [BUSY, ERROR, ("execute_reply", 0), IDLE]
    front.received.clear()
    front.fails(request(store_history=False))
    assert front.received == [BUSY, ("execute_input", 1), ERROR, ("execute_reply", 0), IDLE]
    assert not front.answers.reserved


def test_a_cell_that_the_kernel_left_keeps_its_number_and_is_not_busy_again(front: Front) -> None:
    cell = request()
    front.kernel(cell, "status", execution_state="busy")
    front.kernel(cell, "execute_input", code="c", execution_count=4)
    front.fails(cell)
    assert front.received == [BUSY, ("execute_input", 4), ERROR, ("execute_reply", 4), IDLE]
    front.received.clear()
    front.fails(request())
    assert ("execute_reply", 5) in front.received


def test_a_reply_of_the_kernel_whose_idle_does_not_come(front: Front) -> None:
    cell = request()
    front.kernel(cell, "status", execution_state="busy")
    for _ in range(2):
        front.gets(front.answers.end(cell))
    assert front.received == [BUSY, IDLE]


def test_a_kernel_that_has_ended_says_what_it_was_unless_that_is_not_known(front: Front) -> None:
    """Clients of jupyter_client cannot read an error in place of that."""
    assert front.answers.refuse(request("kernel_info_request"), "DeadKernelError", "gone") == []
    front.answers.kernel_info = {"status": "ok", "protocol_version": "5.3"}
    front.gets(front.answers.refuse(request("kernel_info_request"), "DeadKernelError", "gone"))
    assert front.received == [BUSY, ("kernel_info_reply", "ok"), IDLE]


def test_other_requests_and_aborted_cells(front: Front) -> None:
    front.fails(request("complete_request"))
    assert front.received == [BUSY, ("complete_reply", "error"), IDLE]
    front.received.clear()
    front.gets(front.answers.abort(request()))
    assert front.received == [BUSY, ("execute_reply", "aborted"), IDLE]


def test_what_a_predecessor_published_is_not_published_again(front: Front) -> None:
    cell = request()
    front.answers.assume_busy(cell, 0)
    front.kernel(cell, "status", execution_state="busy")
    front.fails(cell)
    assert front.received == [ERROR, ("execute_reply", 0), IDLE]


def test_a_kernel_that_is_never_idle_fills_no_memory(front: Front) -> None:
    first, last = request(), request()
    front.gets(front.answers.begin(first))
    for _ in range(MAX_REQUESTS):
        front.kernel(request(), "status", execution_state="busy")
    front.gets(front.answers.begin(last))
    assert not front.answers.begin(last) and front.answers.begin(first)
