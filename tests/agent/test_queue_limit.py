"""What may wait before a kernel has a bound, and an answer beyond it."""

from __future__ import annotations

import json

import pytest

from jupyter_gpu_kernel.agent.relay import requests
from jupyter_gpu_kernel.agent.relay.requests import QueueLimit
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(size: int, msg_id: str, channel: Channel = Channel.SHELL) -> Message:
    header = json.dumps({"msg_id": msg_id}).encode()
    return Message(channel, 1, (header, b"p", b"m", b"x" * (size - len(header) - 2)))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_WAITING", 1000)
    monkeypatch.setattr(requests, "MAX_REQUESTS", 5)


def test_bytes_that_wait() -> None:
    limit = QueueLimit()
    assert limit.admit(request(600, "a")) and limit.admit(request(400, "b"))
    assert not limit.admit(request(4, "c"))
    assert limit.admit(request(5000, "an answer to input()", Channel.STDIN))
    limit.release("a")
    assert limit.admit(request(600, "c")) and not limit.admit(request(4, "d"))
    limit.release("nobody's")
    limit.clear()
    assert limit.admit(request(1000, "d"))


def test_one_of_any_size_may_wait_where_nothing_else_does() -> None:
    limit = QueueLimit()
    assert limit.admit(request(5000, "large")) and not limit.admit(request(4, "small"))
    limit.release("large")
    assert limit.admit(request(4, "small"))


def test_the_same_request_counts_once() -> None:
    limit = QueueLimit()
    for _ in range(20):
        assert limit.admit(request(400, "again"))


def test_how_many() -> None:
    limit = QueueLimit()
    assert [limit.admit(request(4, str(n))) for n in range(7)] == [True] * 5 + [False] * 2
