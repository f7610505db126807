"""What may wait before a kernel has a bound, and an answer beyond it."""

from __future__ import annotations

import pytest

from jupyter_gpu_kernel.agent.relay import queue_limit
from jupyter_gpu_kernel.agent.relay.queue_limit import QueueLimit
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(size: int, channel: Channel = Channel.SHELL) -> Message:
    return Message(channel, 1, (b"h", b"p", b"m", b"x" * (size - 3)))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_limit, "MOST", 1000)
    monkeypatch.setattr(queue_limit, "MOST_REQUESTS", 5)


def test_bytes_that_wait() -> None:
    limit = QueueLimit()
    assert limit.admits(request(600), "a") and limit.admits(request(400), "b")
    assert not limit.admits(request(4), "c")
    assert limit.admits(request(5000, Channel.STDIN), "an answer to input()")
    limit.began("a")
    assert limit.admits(request(600), "c") and not limit.admits(request(4), "d")
    limit.began("nobody's")
    limit.forget()
    assert limit.admits(request(1000), "d")


def test_one_of_any_size_may_wait_where_nothing_else_does() -> None:
    limit = QueueLimit()
    assert limit.admits(request(5000), "large") and not limit.admits(request(4), "small")
    limit.began("large")
    assert limit.admits(request(4), "small")


def test_the_same_request_counts_once() -> None:
    limit = QueueLimit()
    for _ in range(20):
        assert limit.admits(request(400), "again")


def test_how_many() -> None:
    limit = QueueLimit()
    assert [limit.admits(request(4), str(n)) for n in range(7)] == [True] * 5 + [False] * 2
