"""Input that no well-meaning peer sends: only this module's errors come of it, and the next peer is served."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from malformed import HELLO, NO_OBJECTS, frames, numbers, some
from runtimes import RUNTIME
from windows import fixed_window

from jupyter_gpu_kernel.wire import PROTOCOL
from jupyter_gpu_kernel.wire.fields import FieldError, load_object
from jupyter_gpu_kernel.wire.messages import Lane, Message, MessageError
from jupyter_gpu_kernel.wire.stream import queues
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint, EndpointState, ProtocolError
from jupyter_gpu_kernel.wire.stream.frames import (
    CHUNK,
    MAX_PAYLOAD,
    Frame,
    FrameError,
    FrameReader,
    Kind,
    json_frame,
)
from jupyter_gpu_kernel.wire.stream.queues import Inbox, NumberingError, Outbox
from jupyter_gpu_kernel.wire.stream.window import Window


@some
@given(st.lists(st.binary(max_size=200) | frames.map(Frame.encode), max_size=6), st.booleans())
def test_bytes(pieces: list[bytes], greeting: bool) -> None:
    reader = FrameReader(greeting)
    for piece in pieces:
        try:
            got = reader.feed(piece)
        except FrameError:
            return
        assert all(frame.kind in Kind for frame in got)


def test_a_frame_is_refused_before_it_is_all_there() -> None:
    with pytest.raises(FrameError):
        FrameReader(greeting=False).feed(struct.pack("!IIBBQ", MAX_PAYLOAD + 1, 1, 2, 0, 1))


@some
@given(st.booleans(), st.lists(frames, max_size=6))
def test_frames(first: bool, sent: list[Frame]) -> None:
    """The stream is given up at worst; nothing that was not acknowledged is lost for whoever comes then."""
    end = Endpoint(RUNTIME, first=first)
    end.opened(1)
    list(end.outgoing())
    for frame in [json_frame(Kind.HELLO, {**HELLO, "peer": end._session}), *sent]:
        try:
            end.receive(frame)
        except (ProtocolError, FrameError):
            break
        list(end.outgoing())
    end.closed()
    end.send(Lane.ORDERED, b"kept")
    other = Endpoint(RUNTIME, first=not first)
    got = exchange(end, other)
    assert got == [b"kept"] and other.state is end.state is EndpointState.OPEN


def exchange(end: Endpoint, other: Endpoint) -> list[bytes]:
    """What the other gets on a new stream."""
    got: list[bytes] = []
    end.opened(1)
    other.opened(1)
    for _ in range(4):
        for giver, taker in ((end, other), (other, end)):
            giver.acknowledge()
            for frame in giver.outgoing():
                got += taker.receive(frame) if taker is other else taker.receive(frame)[:0]
    return got


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": PROTOCOL + 1},
        {"protocol": None},
        {"protocol": "1"},
        {"protocol": True},
        {"session": ""},
        {"session": ["s"]},
        {"session": 7},
        {"session": "s" * 1000},
        {"peer": {}},
        {"received": "all"},
        {"received": -1},
        {"received": 1.5},
        {"received": 1 << 64},
        {"serials": [1]},
        {"serials": [1, 2]},
        {"serials": ["1", 2, 3]},
        {"serials": [1, 2, -3]},
        {"delivered": 5},
        {"delivered": "abc"},
        {"delivered": [1, 2, 3, 4]},
        {"features": 5},
        {"features": [5]},
        {"features": ["f"] * 1000},
    ],
)
def test_a_hello_with_a_wrong_value(wrong: dict[str, Any]) -> None:
    """Refused as a whole: nothing has changed."""
    keeper = Endpoint(RUNTIME, first=False)
    with pytest.raises(ProtocolError):
        keeper.check(json_frame(Kind.HELLO, {**HELLO, **wrong}))
    keeper.opened(1)
    before = dict(vars(keeper))
    with pytest.raises(ProtocolError):
        keeper.receive(json_frame(Kind.HELLO, {**HELLO, **wrong}))
    assert vars(keeper) == before


def test_a_hello_that_has_more_than_was_sent_or_lacks_what_is_gone() -> None:
    keeper, hub = Endpoint(RUNTIME, first=False), Endpoint(RUNTIME, first=True)
    keeper.send(Lane.ORDERED, b"1")
    keeper.send(Lane.ORDERED, b"2")
    assert exchange(keeper, hub) == [b"1", b"2"]
    keeper.closed()
    for received in (3, 1):
        with pytest.raises(ProtocolError):
            keeper.check(
                json_frame(
                    Kind.HELLO,
                    {**HELLO, "session": hub._session, "peer": keeper._session, "received": received},
                )
            )


@some
@given(
    st.binary(max_size=80) | st.builds(lambda head, rest: head + rest, st.just(b"\5\0\0\0\0"), st.binary())
)
def test_messages(data: bytes) -> None:
    try:
        message = Message.decode(data)
        message.header(), message.parent(), message.metadata(), message.content()
    except MessageError:
        pass


@some
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "take", "ack", "resume", "put_back", "restart"]), numbers),
        max_size=30,
    )
)
def test_an_outbox(steps: list[tuple[str, int]]) -> None:
    """Whatever a peer says that it has: sizes stay right, and the rest can still be sent to another."""
    outbox, held = Outbox(fixed_window(100)), 0
    for what, number in steps:
        try:
            if what == "put":
                outbox.put(Lane(number % 3), b"x" * (number % 50))
            elif what == "take":
                next(outbox.take(), None)
            elif what == "ack":
                outbox.acknowledge(number)
            elif what == "resume":
                outbox.resume(number)
            elif what == "put_back":
                outbox.requeue()
            else:
                outbox.restart([number, number, number] if number % 2 else None)
        except NumberingError:
            pass
        assert outbox.size >= 0
    held = outbox.size
    assert sum(map(len, outbox.withdraw())) == held and not outbox.size


@some
@given(st.lists(st.tuples(numbers, st.integers(0, 255), st.binary(max_size=20)), max_size=20))
def test_an_inbox(chunks: list[tuple[int, int, bytes]]) -> None:
    inbox = Inbox()
    for number, flags, payload in chunks:
        before = inbox.received
        try:
            inbox.accept(number, flags, payload)
        except NumberingError:
            assert inbox.received == before
        assert inbox.received - before in (0, 1)


def test_a_message_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MAX_MESSAGE", 1000)
    inbox = Inbox()
    for number in range(1, 11):
        assert inbox.accept(number, int(Lane.ORDERED), b"x" * 100) is None
    with pytest.raises(NumberingError, match="a message of more than"):
        inbox.accept(11, int(Lane.ORDERED), b"x")
    with pytest.raises(NumberingError, match="a message of more than"):
        inbox.accept(11, int(Lane.URGENT), b"x")  # begun in another lane


@pytest.mark.parametrize(("size", "flags"), [(0, 2), (CHUNK + 1, 0x82)])
def test_a_chunk_of_a_wrong_size(size: int, flags: int) -> None:
    with pytest.raises(NumberingError, match=f"has {size} bytes"):
        Inbox().accept(1, flags, bytes(size))


def test_what_a_repeat_after_a_reconnect_need_not_say_any_more() -> None:
    """An acknowledgement comes in the middle of it."""
    outbox = Outbox(Window(RUNTIME.monotonic))
    for payload in (b"1", b"2", b"3"):
        outbox.put(Lane.ORDERED, payload)
    assert len(list(outbox.take())) == 3
    outbox.resume(0)
    repeat = outbox.take()
    assert next(repeat).payload == b"1"
    outbox.acknowledge(2)
    outbox.put(Lane.ORDERED, b"4")
    assert [chunk.payload for chunk in repeat] == [b"3", b"4"]
    assert [chunk.payload for chunk in outbox.take()] == []


@pytest.mark.parametrize("data", NO_OBJECTS)
def test_json_that_is_not_read(data: bytes) -> None:
    with pytest.raises(FieldError):
        load_object(data)
