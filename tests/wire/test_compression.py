"""Compressed chunks: what is sent arrives as it was, whatever is cut, and what a peer sends stays bounded."""

from __future__ import annotations

import itertools
import json
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes import RUNTIME
from windows import fixed_window

from jupyter_gpu_kernel.wire.messages import Data, Lane
from jupyter_gpu_kernel.wire.stream.compression import FASTEST, FEATURE, LEAST, Compressor, decompress
from jupyter_gpu_kernel.wire.stream.compression import MOST as COMPRESSIBLE
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint, ProtocolError
from jupyter_gpu_kernel.wire.stream.frames import CHUNK, Frame, Kind
from jupyter_gpu_kernel.wire.stream.queues import COMPRESSED, Inbox, NumberingError, Outbox
from jupyter_gpu_kernel.wire.stream.window import MOST, Window

TEXT = json.dumps([[number, number / 7, f"row {number}"] for number in range(20_000)]).encode()


def slow_window(size: int, step: float = 0.05) -> Window:
    """Return a window that always has this size, whose clock goes on by `step` seconds whenever it is read."""
    return Window(itertools.count(0.0, step).__next__, size, size, size)


class Path:
    """A keeper's end that sends, the hub's end that receives, and how many bytes of payload were sent."""

    def __init__(self, keeper: Endpoint, *features: str, after: Path | None = None) -> None:
        """`after`: the path to the hub before this one, which was killed."""
        self.keeper = keeper
        delivered = None if after is None else after.hub.delivered
        self.hub: Endpoint = Endpoint(RUNTIME, first=True, delivered=delivered, features=features)
        self.got: list[bytes] = [] if after is None else after.got
        self.sent = 0
        self.connect()

    def connect(self) -> None:
        for end in (self.hub, self.keeper):
            end.closed()
            end.opened()
        self.exchange()

    def exchange(self, most: int = 1 << 30) -> None:
        """Pass frames on until nothing is left to say, or `most` frames of data have come."""
        while True:
            self.hub.acknowledge()
            frames = [(self.keeper, frame) for frame in self.hub.outgoing()]
            frames += [(self.hub, frame) for frame in self.keeper.outgoing(CHUNK)]
            if not frames:
                return
            for end, frame in frames:
                if end is self.hub and frame.kind is Kind.DATA:
                    if not most:
                        return
                    most -= 1
                    self.sent += len(frame.payload)
                self.got += map(bytes, end.receive(frame))


@pytest.mark.parametrize(
    ("features", "window", "less"),
    [
        ((FEATURE,), slow_window(4 * CHUNK), True),
        ((), slow_window(4 * CHUNK), False),
        ((FEATURE,), fixed_window(4 * CHUNK), False),
    ],
    ids=["a slow path", "an older hub", "a fast path"],
)
def test_text_is_compressed_on_a_slow_path_for_a_hub_that_reads_it(
    features: tuple[str, ...], window: Window, less: bool
) -> None:
    path = Path(Endpoint(RUNTIME, first=False, window=window), *features)
    messages = [TEXT * 4, b"small", TEXT]
    for message in messages:
        path.keeper.send(Lane.ORDERED, message)
    path.exchange()
    assert path.got == messages
    size = sum(map(len, messages))
    assert (path.sent < size * 0.6) if less else (path.sent == size)
    assert path.keeper.outbox.size == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 12), max_size=6))
def test_what_was_compressed_comes_once_and_in_order_whatever_is_cut(seed: int, cuts: list[int]) -> None:
    chance = random.Random(seed)
    path = Path(Endpoint(RUNTIME, first=False, window=slow_window(2 * CHUNK)), FEATURE)
    messages = [
        chance.choice([TEXT, chance.randbytes(3 * CHUNK), b"%d" % seed, TEXT[: LEAST + 5]]) for _ in range(6)
    ]
    for message in messages:
        path.keeper.send(Lane.ORDERED, message)
    for cut in cuts:
        path.exchange(cut)
        if chance.random() < 0.3:  # another hub, an older one perhaps
            path = Path(path.keeper, *chance.choice([(FEATURE,), ()]), after=path)
        else:
            path.connect()
    path.exchange()
    assert path.got == messages


NOISE = random.Random(1).randbytes(CHUNK)


@pytest.mark.parametrize(
    "chunk", [NOISE, b"x" * LEAST + NOISE[LEAST:]], ids=["all of it", "but its beginning"]
)
def test_of_data_that_stays_large_little_is_compressed(chunk: bytes) -> None:
    compressor = Compressor()
    assert [compressor.compress(chunk) for _ in range(17)] == [None] * 17
    text = [compressor.compress(TEXT[:CHUNK]) for _ in range(20)]
    assert text[0] is None, "after such data, some chunks are not looked at"
    assert text[-1] is not None and decompress(text[-1], CHUNK) == TEXT[:CHUNK]
    assert Compressor().compress(b"x" * (LEAST - 1)) is None


def test_no_more_is_on_its_way_than_the_peer_may_hold() -> None:
    outbox = Outbox(slow_window(CHUNK, 0.025))  # so 25 or 50 ms a round
    outbox.compresses = True
    outbox.put(Lane.ORDERED, b"x")
    assert len(list(outbox.take())) == 1
    outbox.acknowledge(1)  # now the delay is known
    outbox.put(Lane.ORDERED, b"x" * (3 * MOST))
    sent = list(outbox.take())
    assert 0.025 < len(sent) * CHUNK / FASTEST < 0.1 and all(chunk.flags & COMPRESSED for chunk in sent)
    outbox.acknowledge(sent[9].number)
    assert len(list(outbox.take())) == 10
    outbox.put(Lane.URGENT, b"now")
    assert [chunk.payload for chunk in outbox.take()] == [b"now"]


def test_a_piece_of_output_takes_little_time_to_compress() -> None:
    path = Path(Endpoint(RUNTIME, first=False, window=slow_window(MOST, 0.5)), FEATURE)
    path.keeper.send(Lane.ORDERED, b"1")
    path.exchange()
    path.keeper.send(Lane.ORDERED, b"x" * (100 * CHUNK))
    assert len(path.keeper.outgoing(CHUNK)) == 4


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"no zlib",
        zlib.compress(b"x" * (CHUNK + 1)),
        zlib.compress(b"x" * 10**8),
        zlib.compress(b""),
        zlib.compress(b"x" * 99)[:-1],
        zlib.compress(b"x") + b"more",
    ],
)
def test_what_cannot_be_decompressed_ends_the_stream(payload: bytes) -> None:
    with pytest.raises(NumberingError):
        Inbox(decompresses=True).accept(1, Lane.ORDERED | COMPRESSED, payload)
    path = Path(Endpoint(RUNTIME, first=False), FEATURE)
    with pytest.raises(ProtocolError):
        path.hub.receive(Frame(Kind.DATA, 0, 1, Lane.ORDERED | COMPRESSED, payload))


def test_a_whole_chunk_can_be_read() -> None:
    inbox = Inbox(decompresses=True)
    whole: Data | None = inbox.accept(1, 0x80 | Lane.ORDERED | COMPRESSED, zlib.compress(b"x" * CHUNK))
    assert whole == b"x" * CHUNK


def test_an_end_that_reads_no_compressed_chunks_refuses_them() -> None:
    """The keeper's: it never said that it does."""
    path = Path(Endpoint(RUNTIME, first=False), FEATURE)
    frame = Frame(Kind.DATA, 0, 1, 0x80 | Lane.ORDERED | COMPRESSED, zlib.compress(b"x"))
    with pytest.raises(ProtocolError, match="cannot be read"):
        path.keeper.receive(frame)
    assert path.hub.receive(frame) == [b"x"]


def test_of_one_message_no_more_is_decompressed_than_may_be_compressed() -> None:
    """What a receiver has to keep beyond that costs the sender as much."""
    inbox, packed = Inbox(decompresses=True), zlib.compress(b"x" * CHUNK)
    for number in range(1, COMPRESSIBLE // CHUNK + 1):
        assert inbox.accept(number, Lane.ORDERED | COMPRESSED, packed) is None
    with pytest.raises(NumberingError):
        inbox.accept(number + 1, Lane.ORDERED | COMPRESSED, packed)
    assert inbox.accept(number + 1, Lane.ORDERED, b"x" * CHUNK) is None
    with pytest.raises(NumberingError):
        inbox.accept(number + 2, Lane.URGENT | COMPRESSED, packed)


def test_the_rest_of_a_long_message_and_other_lanes_are_sent_as_they_are() -> None:
    path = Path(Endpoint(RUNTIME, first=False, window=slow_window(4 * CHUNK)), FEATURE)
    path.keeper.send(Lane.URGENT, bytes(2 * CHUNK))
    path.exchange()
    assert path.sent == 2 * CHUNK
    path.sent, message = 0, bytes(COMPRESSIBLE + 5 * CHUNK)
    path.keeper.send(Lane.ORDERED, message)
    path.exchange()
    assert 5 * CHUNK < path.sent < 0.1 * len(message)
    assert path.got[-1] == message
