"""The wire, both ends joined by a pretend stream: what is sent arrives exactly once and in order, cut
where you like."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import pytest
from endpoint_pipe import Pipe
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes import RUNTIME
from windows import fixed_window

from jupyter_gpu_kernel.wire.fields import DEPTH
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message, MessageError, keeper_message, lane_of
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint, EndpointState, ProtocolError
from jupyter_gpu_kernel.wire.stream.frames import (
    CHUNK,
    MAGIC,
    MAX_NOISE,
    MAX_PAYLOAD,
    Frame,
    FrameError,
    FrameReader,
    Kind,
    reply_frame,
)
from jupyter_gpu_kernel.wire.stream.queues import Inbox, NumberingError, Outbox
from jupyter_gpu_kernel.wire.stream.window import Window

# ---------------------------------------------------------------------------------------------- frames


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 50), st.binary(max_size=40))
def test_frames_survive_any_cutting_of_the_stream(payloads: list[bytes], step: int, noise: bytes) -> None:
    sent = [Frame(Kind.DATA, 7, n, 2, payload) for n, payload in enumerate(payloads)]
    noise = noise.replace(b"\x00", b"")
    stream = noise + MAGIC + b"".join(frame.encode() for frame in sent)
    reader = FrameReader()
    got = [frame for at in range(0, len(stream), step) for frame in reader.feed(stream[at : at + step])]
    assert got == sent
    assert reader.noise == noise


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff" + b"\0" * 14, b"\0\0\0\0" + b"\0\0\0\0" + b"\x63" + b"\0" * 9]
)
def test_bytes_that_are_no_frames_are_an_error(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader(greeting=False).feed(data)


def test_an_answer_that_no_frame_can_hold_is_an_error() -> None:
    assert reply_frame({"ok": True}, 7).json() == {"ok": True}
    large = reply_frame({"text": "x" * MAX_PAYLOAD}, 7)
    assert (large.kind, large.number, large.json()["error"]["code"]) == (Kind.REPLY, 7, "large")


def test_endless_noise_is_an_error_and_kept() -> None:
    reader = FrameReader()
    assert reader.feed(b"Welcome!\n") == []
    assert reader.noise == b"Welcome!\n"
    split = FrameReader()
    for byte in b"Welcome!\n" + MAGIC + Frame(Kind.PING, number=1).encode():
        frames = split.feed(bytes([byte]))
    assert split.noise == b"Welcome!\n" and frames == [Frame(Kind.PING, number=1)]
    with pytest.raises(FrameError):
        reader.feed(b"x" * (MAX_NOISE + 1))


# ---------------------------------------------------------------------------------------------- messages


@given(st.lists(st.binary(max_size=50), max_size=9), st.integers(0, 2**32 - 1))
def test_message_round_trip(parts: list[bytes], client: int) -> None:
    message = Message(Channel.IOPUB, client, tuple(parts))
    assert Message.decode(message.encode()) == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        keeper_message(do="stop").encode()[:-1],
        keeper_message(do="stop").encode() + b"x",
        b"\x63" + b"\0" * 6,
    ],
)
def test_torn_messages_are_errors(data: bytes) -> None:
    with pytest.raises(MessageError):
        Message.decode(data)


def test_what_is_nested_too_deep_is_an_error_as_any() -> None:
    """User code may raise Python's own limit in its kernel; ours stays."""
    with pytest.raises(MessageError):
        Message(Channel.KEEPER, 0, (b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}",)).content()


def test_json_has_so_many_levels_and_no_more() -> None:
    """Fewer than Python's own limit: whoever writes it out again needs stack, too."""
    for levels, deep in ((DEPTH, False), (DEPTH + 1, True)):
        nested = b'{"a":' * (levels - 1) + b"[]" + b"}" * (levels - 1)
        with pytest.raises(MessageError) if deep else contextlib.nullcontext():
            Message(Channel.KEEPER, 0, (nested,)).content()


def test_a_cells_reply_stays_behind_its_output_and_a_completion_does_not() -> None:
    def lane(channel: Channel, kind: str) -> Lane:
        return lane_of(Message(channel, 0, ()), kind)

    assert lane(Channel.SHELL, "execute_reply") == lane(Channel.IOPUB, "stream") == Lane.ORDERED
    assert lane(Channel.SHELL, "complete_reply") is Lane.PROMPT
    assert lane(Channel.CONTROL, "interrupt_reply") is lane(Channel.STDIN, "input_request") is Lane.URGENT


# ---------------------------------------------------------------------------------------------- journal


def test_a_large_message_is_in_memory_twice_at_most() -> None:
    """Once as it was received, and once as its parts."""
    message = Message(Channel.IOPUB, 0, (b"{}", b"{}", b"{}", bytes(20_000_000)))
    outbox, inbox = Outbox(fixed_window(2 * message.size)), Inbox()
    outbox.put(Lane.ORDERED, message.encode())
    chunks = list(outbox.take())
    tracemalloc.start()
    try:
        came = [inbox.accept(*chunk) for chunk in chunks][-1]
        assert came is not None and Message.decode(came) == message
        assert tracemalloc.get_traced_memory()[1] < 2.3 * message.size
    finally:
        tracemalloc.stop()


def test_urgent_overtakes_bulk_that_is_not_yet_sent() -> None:
    outbox = Outbox(fixed_window(CHUNK))
    outbox.put(Lane.ORDERED, b"b" * (3 * CHUNK))
    first = list(outbox.take())
    assert [len(chunk.payload) for chunk in first] == [CHUNK]  # the window is full
    outbox.put(Lane.URGENT, b"interrupt")
    outbox.acknowledge(1)
    assert next(iter(outbox.take())).payload == b"interrupt"


def test_urgent_overtakes_what_was_sent_and_has_not_come() -> None:
    """Of the first message the peer has a part."""
    outbox, inbox = Outbox(Window(RUNTIME.monotonic)), Inbox()
    first, second = b"1" * (CHUNK + 1), b"2"
    for message in (first, second):
        outbox.put(Lane.ORDERED, message)
    sent = list(outbox.take())
    inbox.accept(*sent[0])
    outbox.put(Lane.URGENT, b"!")
    outbox.resume(inbox.received)
    outbox.requeue()
    came = [inbox.accept(*chunk) for chunk in outbox.take()]
    assert came == [b"!", first, second]
    outbox.acknowledge(inbox.received)
    assert outbox.size == 0


def test_numbers_that_cannot_be_right() -> None:
    outbox, inbox = Outbox(Window(RUNTIME.monotonic)), Inbox()
    outbox.put(Lane.ORDERED, b"1")
    list(outbox.take())
    with pytest.raises(NumberingError):
        outbox.acknowledge(2)
    with pytest.raises(NumberingError):
        inbox.accept(2, 0x82, b"gap")
    assert inbox.accept(1, 0x82, b"one") == b"one"
    assert inbox.accept(1, 0x82, b"one") is None


# ---------------------------------------------------------------------------------------------- connection


def per_lane(messages: list[bytes]) -> dict[bytes, list[bytes]]:
    lanes: dict[bytes, list[bytes]] = {}
    for message in messages:
        lanes.setdefault(bytes(message[:1]), []).append(message)
    return lanes


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 25), st.integers(0, 6))
def test_every_message_arrives_once_and_in_order_whatever_is_cut(seed: int, count: int, cuts: int) -> None:
    chance = random.Random(seed)
    pipe = Pipe(
        Endpoint(RUNTIME, first=True, window=fixed_window(3 * CHUNK)),
        Endpoint(RUNTIME, first=False, window=fixed_window(3 * CHUNK)),
    )
    sent: tuple[list[bytes], list[bytes]] = ([], [])
    pipe.connect()
    cut_at = {chance.randrange(count) for _ in range(cuts)}
    for n in range(count):
        side, lane = chance.randrange(2), chance.choice(list(Lane))
        size = chance.choice([0, 10, CHUNK, CHUNK + 1, 4 * CHUNK])
        message = b"%d-%d-" % (lane, n) + b"." * size
        sent[side].append(message)
        pipe.ends[side].send(lane, message)
        for _ in range(chance.randrange(4)):
            pipe.step(chance.randrange(2), chance.randrange(4))
        if n in cut_at:
            pipe.cut()
            pipe.connect()
    pipe.settle()
    assert per_lane(pipe.got[1]) == per_lane(sent[0])
    assert per_lane(pipe.got[0]) == per_lane(sent[1])


def test_every_cut_point_of_an_exchange() -> None:
    def run(cut: int) -> tuple[tuple[list[bytes], list[bytes]], int]:
        pipe = Pipe(
            Endpoint(RUNTIME, first=True, window=fixed_window(2 * CHUNK)),
            Endpoint(RUNTIME, first=False, window=fixed_window(2 * CHUNK)),
        )
        for n in range(6):
            pipe.ends[n % 2].send(Lane.ORDERED, b"%d" % n * (CHUNK if n == 3 else 5))
        pipe.connect()
        steps = 0
        while not (steps > 4 and not any(pipe.way) and not any(end.outbox.size for end in pipe.ends)):
            pipe.step(steps % 2, 1)
            steps += 1
            if steps == cut:
                pipe.cut()
                pipe.connect()
            assert steps < 1000
        return pipe.got, steps

    undisturbed, steps = run(-1)
    assert steps > 10 and len(undisturbed[0]) == len(undisturbed[1]) == 3
    for cut in range(1, steps + 1):
        assert run(cut)[0] == undisturbed, cut


def test_a_new_hub_gets_what_the_old_one_never_acknowledged() -> None:
    old, keeper = (
        Endpoint(RUNTIME, first=True),
        Endpoint(RUNTIME, first=False, window=fixed_window(2 * CHUNK)),
    )
    pipe = Pipe(old, keeper)
    pipe.connect()
    keeper.send(Lane.ORDERED, b"1")
    pipe.settle()
    keeper.send(Lane.ORDERED, b"2" * (5 * CHUNK))  # under way when the hub dies
    keeper.send(Lane.ORDERED, b"3")
    for _ in range(2):
        pipe.step(1, 1)
        pipe.step(0, 1)
    pipe.cut()
    again = Pipe(Endpoint(RUNTIME, first=True), keeper)
    again.connect()
    again.settle()
    assert pipe.got[0] + again.got[0] == [b"1", b"2" * (5 * CHUNK), b"3"]


@pytest.mark.parametrize("received", [b"", b"asked"])
def test_after_a_withdrawal_the_same_hub_gets_what_comes_then(received: bytes) -> None:
    hub, keeper = (
        Endpoint(RUNTIME, first=True),
        Endpoint(RUNTIME, first=False, window=fixed_window(2 * CHUNK)),
    )
    pipe = Pipe(hub, keeper)
    pipe.connect()
    if received:
        hub.send(Lane.ORDERED, received)
    keeper.send(Lane.ORDERED, b"1")
    pipe.settle()
    keeper.send(Lane.ORDERED, b"2" * (5 * CHUNK))  # of which a part comes
    pipe.step(1, 1)
    pipe.step(0, 1)
    pipe.cut()
    assert keeper.withdraw() == [b"2" * (5 * CHUNK)]
    hub.send(Lane.ORDERED, b"back")
    keeper.send(Lane.ORDERED, b"3")
    pipe.connect()
    pipe.settle()
    assert pipe.got == ([b"1", b"3"], [received, b"back"] if received else [b"back"])


def test_a_new_keeper_gets_what_the_old_one_never_acknowledged() -> None:
    hub = Endpoint(RUNTIME, first=True)
    pipe = Pipe(hub, Endpoint(RUNTIME, first=False))
    pipe.connect()
    hub.send(Lane.ORDERED, b"1")
    pipe.settle()
    pipe.cut()
    hub.send(Lane.ORDERED, b"2")
    again = Pipe(hub, Endpoint(RUNTIME, first=False))
    again.connect()
    again.settle()
    assert again.got[1] == [b"2"]


def test_rules_that_must_not_be_broken() -> None:
    keeper = Endpoint(RUNTIME, first=False)
    keeper.opened(1)
    with pytest.raises(ProtocolError, match="before HELLO"):
        keeper.receive(Frame(Kind.DATA, 1, 1, 0x82, b"early"))
    with pytest.raises(ProtocolError, match="protocol 999"):
        keeper.receive(Frame(Kind.HELLO, 1, payload=b'{"protocol": 999}'))
    assert keeper.state is EndpointState.GREETING


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_a_hub_that_knows_what_the_killed_one_passed_on_gets_the_rest(seed: int, count: int) -> None:
    """Killed at any moment: what was handed out, plus what its successor gets, is everything once."""
    chance = random.Random(seed)
    keeper = Endpoint(RUNTIME, first=False, window=fixed_window(3 * CHUNK))
    hub = Endpoint(RUNTIME, first=True)
    sent: list[bytes] = []
    got: list[bytes] = []
    pipe = Pipe(hub, keeper)
    pipe.connect()
    for n in range(count):
        lane = chance.choice(list(Lane))
        sent.append(b"%d-%d-" % (lane, n) + b"." * chance.choice([0, CHUNK, 4 * CHUNK]))
        keeper.send(lane, sent[-1])
        for _ in range(chance.randrange(4)):
            pipe.step(chance.randrange(2), chance.randrange(4))
        if chance.random() < 0.2:
            got += pipe.got[0]
            pipe.cut()
            hub = Endpoint(RUNTIME, first=True, delivered=hub.delivered)
            pipe = Pipe(hub, keeper)
            pipe.connect()
    pipe.settle()
    assert per_lane(got + pipe.got[0]) == per_lane(sent)
