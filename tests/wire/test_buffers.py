"""The wire's buffers cost no more per byte when they are fuller, whatever the pieces are in which bytes come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moves import Moves, lines
from windows import fixed_window

from jupyter_gpu_kernel.wire.messages import Lane
from jupyter_gpu_kernel.wire.stream.frames import CHUNK, MAX_PAYLOAD, Frame, FrameReader, Kind
from jupyter_gpu_kernel.wire.stream.queues import _LAST, Inbox, Outbox

MB = 1_000_000
PER_BYTE = 10
"""A bytearray grows by an eighth, so that each byte is moved up to nine times until it is full, however large it is."""
PIECES = [(1, MB), (1000, 200 * MB), (MB, 200 * MB)]


def pieces(size: int, frames: list[bytes]) -> Iterator[bytes]:
    """These frames' bytes again and again, in pieces of this size."""
    stream = b"".join(frames)
    held = memoryview(stream * (2 + 2 * size // len(stream)))
    at = 0
    while True:
        yield bytes(held[at : at + size])
        at = (at + size) % len(stream)


@pytest.mark.parametrize("payload", [1000, CHUNK, MAX_PAYLOAD])
@pytest.mark.parametrize(("size", "total"), PIECES)
def test_a_reader_of_frames(size: int, total: int, payload: int) -> None:
    """A frame that is not complete is what waits in it."""
    reader, moves = FrameReader(greeting=False), Moves()
    frames, fed, taken = 0, 0, 0
    for piece in pieces(size, [Frame(Kind.DATA, 1, 1, 0, bytes(payload)).encode()]):
        fed += len(piece)
        for frame in reader.feed(piece):
            frames += 1
            taken += 18 + len(frame.payload)
        moves.note(reader._buffer, taken)
        if fed >= total:
            break
    assert frames == fed // (18 + payload)
    assert moves.bytes < PER_BYTE * fed


def test_what_precedes_the_greeting_is_searched_once() -> None:
    def feed(reader: FrameReader, count: int) -> None:
        for _ in range(count):
            reader.feed(b"\x00")

    empty, full = FrameReader(), FrameReader()
    full.feed(bytes(200_000))
    assert lines(feed, full, 1000) == lines(feed, empty, 1000)
    searched = Searched(full._buffer)
    full._buffer = searched
    feed(full, 1000)
    assert searched.bytes < 20_000


class Searched(bytearray):
    """Counts the bytes that are searched."""

    bytes = 0

    def find(self, what: object, start: object = 0, end: object = None) -> int:  # type: ignore[override]
        assert isinstance(what, bytes) and isinstance(start, int) and end is None
        self.bytes += len(self) - start
        return super().find(what, start)


@pytest.mark.parametrize(("size", "total"), [(1, MB), (1000, 200 * MB), (CHUNK, 200 * MB)])
def test_the_collected_chunks_of_one_message(size: int, total: int) -> None:
    inbox, moves, chunk = Inbox(), Moves(), bytes(size)
    count = total // size
    for number in range(1, count):
        inbox.accept(number, Lane.ORDERED, chunk)
        moves.note(inbox._parts[Lane.ORDERED], 0)
    message = inbox.accept(count, Lane.ORDERED | _LAST, chunk)
    assert message is not None and len(message) == count * size
    assert moves.bytes < PER_BYTE * total


def outbox(messages: int, size: int) -> Outbox:
    """With so many messages that were sent and are not acknowledged, and as many that wait."""
    box = Outbox(fixed_window(messages * size))
    for _ in range(2 * messages):
        box.put(Lane.ORDERED, bytes(size))
    assert sum(1 for _ in box.take()) == messages
    return box


@pytest.mark.parametrize("size", [1, 1000])
def test_messages_that_are_not_acknowledged(size: int) -> None:
    """Each acknowledgement lets as much be sent, whatever is in flight and waits."""

    def pass_on(box: Outbox) -> None:
        for number in range(1, 200):
            box.acknowledge(number)
            assert len(list(box.take())) == 1

    assert lines(pass_on, outbox(20_000, size)) == lines(pass_on, outbox(200, size))


def test_messages_that_are_sent_again_after_a_cut() -> None:
    """No chunk is searched for among those that are to be sent again."""

    def repeat(box: Outbox, count: int) -> None:
        box.resume(0)
        again = box.take()
        for number in range(1, count):
            assert next(again).number == number

    few, many = outbox(300, 1), outbox(30_000, 1)
    assert lines(repeat, many, 200) == lines(repeat, few, 200)
    assert [chunk.number for chunk in many.take()][-1] == 30_000
    many.acknowledge(30_000)
    assert [chunk.number for chunk in many.take()] == list(range(30_001, 60_001))


def test_one_message_is_cut_without_a_move_of_the_rest() -> None:
    """What it consists of stays where it is."""
    box = Outbox(fixed_window(300 * MB))
    data = bytes(200 * MB)
    box.put(Lane.ORDERED, data)
    chunks = 0
    for chunk in box.take():
        chunks += 1
        entry = box._sent[-1][1]
        assert entry.data is data and len(chunk.payload) <= CHUNK
    assert chunks == -(-len(data) // CHUNK)
