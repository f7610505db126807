"""What is acknowledged with data, what alone, and what by HELLO."""

from __future__ import annotations

from endpoint_pipe import Pipe
from runtimes import RUNTIME
from windows import fixed_window

from jupyter_gpu_kernel.wire.messages import Lane
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint
from jupyter_gpu_kernel.wire.stream.frames import (
    CHUNK,
    Frame,
    Kind,
)


def test_only_what_waits_since_the_last_time_is_acknowledged_alone() -> None:
    """Time passes twice: what comes in between may still go with data. Nothing is acknowledged at once later."""
    hub, keeper = Endpoint(RUNTIME, first=True), Endpoint(RUNTIME, first=False)
    Pipe(hub, keeper).connect()
    exchange(hub, keeper)

    hub.acknowledge()
    hub.acknowledge_overdue()
    for _ in range(3):  # messages to and fro, slower than time passes
        keeper.send(Lane.ORDERED, b"output")
        exchange(keeper, hub)
        hub.acknowledge_overdue()
        assert hub.outgoing() == []
        hub.send(Lane.ORDERED, b"request")
        assert kinds(exchange(hub, keeper)) == [Kind.ACK, Kind.DATA]
        hub.acknowledge_overdue()

    keeper.send(Lane.ORDERED, b"output")
    exchange(keeper, hub)
    hub.acknowledge_overdue()
    assert hub.outgoing() == []
    hub.acknowledge_overdue()
    assert kinds(exchange(hub, keeper)) == [Kind.ACK]
    assert keeper.outbox.size == 0


def test_what_is_let_go_while_the_keeper_answers_is_acknowledged() -> None:
    """HELLO has told an older number; the keeper sends what it has on from there, and may send nothing new."""
    hub = Endpoint(RUNTIME, first=True)
    keeper = Endpoint(RUNTIME, first=False, window=fixed_window(2 * CHUNK))
    pipe = Pipe(hub, keeper)
    pipe.connect()
    exchange(hub, keeper)
    hub.hold_acknowledgements(1)
    for _ in range(3):
        keeper.send(Lane.ORDERED, bytes(CHUNK))
    exchange(keeper, hub)
    pipe.cut()
    pipe.connect()
    (hello,) = hub.outgoing()
    hub.hold_acknowledgements(0)
    keeper.receive(hello)
    exchange(keeper, hub)
    exchange(hub, keeper)
    assert [frame.number for frame in exchange(keeper, hub) if frame.kind is Kind.DATA] == [3]


def test_a_little_data_is_acknowledged_with_data_or_on_request() -> None:
    """And more than a chunk at once: an acknowledgement alone wakes up every process on the way."""
    hub, keeper = Endpoint(RUNTIME, first=True), Endpoint(RUNTIME, first=False)
    Pipe(hub, keeper).connect()
    exchange(hub, keeper)

    keeper.send(Lane.ORDERED, b"output")
    assert kinds(exchange(keeper, hub)) == [Kind.DATA]
    assert hub.owes_acknowledgement and hub.outgoing() == []
    hub.acknowledge()
    assert kinds(exchange(hub, keeper)) == [Kind.ACK]
    assert not hub.owes_acknowledgement and keeper.outbox.size == 0

    keeper.send(Lane.ORDERED, b"output")
    exchange(keeper, hub)
    hub.send(Lane.ORDERED, b"request")
    assert kinds(exchange(hub, keeper)) == [Kind.ACK, Kind.DATA]
    keeper.send(Lane.ORDERED, b"." * CHUNK)
    exchange(keeper, hub)
    assert kinds(exchange(hub, keeper)) == [Kind.ACK]


def exchange(*ends: Endpoint) -> list[Frame]:
    """The first end writes, the second one reads; with HELLO, both do."""
    first, second = ends
    frames = first.outgoing()
    for frame in frames:
        second.receive(frame)
    if frames and frames[0].kind is Kind.HELLO:
        for frame in second.outgoing():
            first.receive(frame)
    return frames


def kinds(frames: list[Frame]) -> list[Kind]:
    return [frame.kind for frame in frames]
