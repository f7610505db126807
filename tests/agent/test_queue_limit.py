"""What may wait before a kernel has a bound, and an answer beyond it."""

from __future__ import annotations

from pathlib import Path

import pytest
from relays import Exchange
from runtimes import make

from jupyter_gpu_kernel.agent.log import requests
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(size: int, channel: Channel = Channel.SHELL) -> Message:
    msg_type = "input_reply" if channel is Channel.STDIN else "execute_request"
    return Message(channel, 1, make(msg_type, {"code": "x" * size, "value": ""}))


@pytest.fixture
def exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exchange:
    monkeypatch.setattr(requests, "MAX_SIZE", 10_000)
    monkeypatch.setattr(requests, "MAX_REQUESTS", 5)
    return Exchange(tmp_path)


def admits(exchange: Exchange, one: Message) -> bool:
    before = len(exchange.received)
    exchange.receive(one)
    return not [one for one in exchange.received[before:] if one.content().get("ename") == "QueueFull"]


def ends(exchange: Exchange, one: Message) -> None:
    exchange.sends(Channel.SHELL, "execute_reply", {"status": "ok"}, one.parts[0])
    exchange.is_("idle", one.parts[0])


def test_bytes_that_wait(exchange: Exchange) -> None:
    first = request(5000)
    assert admits(exchange, first) and admits(exchange, request(3000))
    assert not admits(exchange, request(3000))
    assert admits(exchange, request(50_000, Channel.STDIN))
    ends(exchange, first)
    assert admits(exchange, request(3000))


def test_one_of_any_size_may_wait_where_nothing_else_does(exchange: Exchange) -> None:
    large = request(50_000)
    assert admits(exchange, large) and not admits(exchange, request(4))
    ends(exchange, large)
    assert admits(exchange, request(4))


def test_how_many(exchange: Exchange) -> None:
    assert [admits(exchange, request(4)) for _ in range(7)] == [True] * 5 + [False] * 2


def test_one_that_does_not_wait_is_answered_at_once(exchange: Exchange) -> None:
    for _ in range(5):
        admits(exchange, request(4))
    refused = request(4)
    assert not admits(exchange, refused)
    (reply,) = [one for one in exchange.received if one.channel is Channel.SHELL]
    assert reply.parent_id == refused.msg_id and reply.content()["ename"] == "QueueFull"
