"""What a kernel says in messages that are too large for the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from relays import Exchange
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent.core import message_limit
from jupyter_gpu_kernel.agent.core.message_limit import MESSAGE_LIMITS, limit_size
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint
from jupyter_gpu_kernel.wire.stream.queues import MAX_MESSAGE

LIMITS = {Lane.URGENT: 2_000, Lane.PROMPT: 2_000, Lane.ORDERED: 10_000}
HEADER = json.dumps({"msg_id": "cell", "msg_type": "execute_request"}).encode()


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_limit, "MESSAGE_LIMITS", LIMITS)


def kernel_message(channel: Channel, msg_type: str, size: int = 20_000, **content: Any) -> Message:
    return Message(channel, 7, (*make(msg_type, content, HEADER), bytes(size)))


def replaced(message: Message) -> List[Message]:
    messages = limit_size(RUNTIME, message)
    for one in messages:
        assert one.size < 2_000 and one.parent()["msg_id"] == "cell"
    return messages


def content(message: Message) -> Dict[str, Any]:
    return message.content()


def test_the_shares_of_all_lanes_are_what_a_hub_takes() -> None:
    assert sum(MESSAGE_LIMITS[lane] for lane in Lane) == MAX_MESSAGE


@pytest.mark.parametrize("size", [0, 1, 9_000])
def test_what_fits_is_left_alone(size: int) -> None:
    message = kernel_message(Channel.IOPUB, "display_data", size)
    assert message.size == len(message.encode())
    (same,) = limit_size(RUNTIME, message)
    assert same is message


def test_the_limit_is_the_lanes() -> None:
    assert (
        limit_size(RUNTIME, kernel_message(Channel.SHELL, "inspect_reply", 3_000))[0].content()["status"]
        == "error"
    )
    exact = kernel_message(Channel.IOPUB, "stream", 0)
    exact = exact.replace(parts=(*exact.parts, bytes(10_000 - exact.size - 4)))
    assert exact.size == 10_000 and limit_size(RUNTIME, exact) == [exact]
    assert limit_size(RUNTIME, exact.replace(parts=(*exact.parts[:-1], exact.parts[-1] + b"x"))) != [exact]


@pytest.mark.parametrize("msg_type", ["stream", "display_data", "execute_result", "comm_msg", "anything"])
def test_an_output_becomes_a_line_in_its_cell(msg_type: str) -> None:
    (notice,) = replaced(kernel_message(Channel.IOPUB, msg_type))
    assert notice.channel is Channel.IOPUB and notice.header()["msg_type"] == "stream"
    assert content(notice)["name"] == "stderr"
    assert f"{msg_type} of 0.0 MB: a message may have at most 0.0 MB" in content(notice)["text"]


def test_an_error_stays_an_error() -> None:
    (error,) = replaced(kernel_message(Channel.IOPUB, "error", ename="ValueError"))
    assert error.header()["msg_type"] == "error" and content(error)["ename"] == "MessageTooLarge"


@pytest.mark.parametrize("channel", [Channel.SHELL, Channel.CONTROL])
def test_a_reply_becomes_an_error_for_its_client(channel: Channel) -> None:
    (reply,) = replaced(kernel_message(channel, "complete_reply", status="ok"))
    assert (reply.channel, reply.client, reply.header()["msg_type"]) == (channel, 7, "complete_reply")
    assert content(reply)["status"] == "error" and content(reply)["ename"] == "MessageTooLarge"


def test_a_cell_whose_reply_is_replaced_says_why_and_keeps_its_number() -> None:
    notice, reply = replaced(kernel_message(Channel.SHELL, "execute_reply", status="ok", execution_count=5))
    assert (notice.channel, content(notice)["name"]) == (Channel.IOPUB, "stderr")
    assert (reply.channel, reply.client, content(reply)["status"]) == (Channel.SHELL, 7, "error")
    assert content(reply)["execution_count"] == 5
    (reply,) = replaced(kernel_message(Channel.SHELL, "execute_reply", status="error", execution_count=6))
    assert content(reply)["execution_count"] == 6


@pytest.mark.parametrize("password", [True, False])
def test_a_prompt_can_still_be_answered(password: bool) -> None:
    (asked,) = replaced(kernel_message(Channel.STDIN, "input_request", prompt="x", password=password))
    assert asked.header()["msg_type"] == "input_request" and asked.client == 7
    assert content(asked)["password"] is password and "at most" in content(asked)["prompt"]


def test_a_header_without_bounds_is_not_repeated() -> None:
    parts = make("stream", {}, json.dumps({"msg_id": "x" * 100_000}).encode())
    (notice,) = limit_size(RUNTIME, Message(Channel.IOPUB, 0, parts))
    assert notice.size < 2_000


def test_front_ends_hear_the_replacement_and_the_cell_ends(tmp_path: Path) -> None:
    exchange = Exchange(tmp_path)
    relay, received = exchange.relay, exchange.received
    exchange.receive(Message(Channel.SHELL, 1, (HEADER, b"{}", b"{}", b"{}")))
    large = {"text": "x" * 20_000}
    for channel, msg_type, value in (
        (Channel.IOPUB, "status", {"execution_state": "busy"}),
        (Channel.IOPUB, "stream", large),
        (Channel.SHELL, "execute_reply", dict(large, status="ok", execution_count=1)),
        (Channel.IOPUB, "status", {"execution_state": "idle"}),
    ):
        exchange.sends(channel, msg_type, value, HEADER)
    types = [message.header()["msg_type"] for message in received]
    assert types == ["status", "stream", "stream", "status", "execute_reply"]
    assert not relay.busy and all(message.size < 2_000 for message in received)


def test_the_largest_of_each_lane_arrive_together() -> None:
    """As a hub takes them: what of several lanes is on its way counts as one."""
    hub, keeper = Endpoint(RUNTIME, first=True), Endpoint(RUNTIME, first=False)
    for end in (hub, keeper):
        end.opened()
    for frame in hub.outgoing():
        keeper.receive(frame)
    for frame in keeper.outgoing():
        hub.receive(frame)
    for lane in (Lane.ORDERED, Lane.PROMPT, Lane.URGENT):
        keeper.send(lane, bytes(MESSAGE_LIMITS[lane]))
        got = [message for frame in keeper.outgoing(1) for message in hub.receive(frame)]
        assert not got  # begun, and overtaken by the next
    sizes: List[int] = []
    while len(sizes) < len(MESSAGE_LIMITS):
        for frame in keeper.outgoing():
            sizes += map(len, hub.receive(frame))
        for frame in hub.outgoing():
            keeper.receive(frame)
    assert sizes == [MESSAGE_LIMITS[lane] for lane in Lane]
