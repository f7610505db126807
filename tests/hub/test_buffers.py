"""The hub's buffers cost no more per byte when they are fuller, whatever the pieces are in which bytes come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
import zmq
from moves import Moves, lines
from paramiko.buffered_pipe import BufferedPipe
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.front_end.sockets import MAX_UNREAD, _UnreadBytes
from jupyter_gpu_kernel.hub.node.stream_threads import StreamThreads
from jupyter_gpu_kernel.hub.ssh.transport import WINDOW, BufferedSocket
from jupyter_gpu_kernel.hub.transport.stream import READ_SIZE, Stream
from jupyter_gpu_kernel.wire.stream.frames import CHUNK, MAGIC, Frame, Kind

pytestmark = pytest.mark.full

MB = 1_000_000
PIECES = [(1, MB), (1000, 200 * MB), (MB, 200 * MB)]


# ---------------------------------------------------------------------------------------------- the jump channel


class Channel:
    """What a BufferedSocket reads of a channel: paramiko's own buffer. `moved`: how many bytes a read leaves there, as
    they are moved to its beginning."""

    def __init__(self) -> None:
        self.pipe = BufferedPipe()
        self.moved = 0
        self.got: list[bytes] = []

    def recv(self, size: int) -> bytes:
        data = self.pipe.read(size)
        self.moved += len(self.pipe)
        self.got.append(data)
        return bytes(data)


@pytest.mark.parametrize(("size", "total"), PIECES)
@pytest.mark.parametrize("full", [1, WINDOW])
def test_the_channel_to_the_next_hop(size: int, total: int, full: int) -> None:
    """Whether so much waits in it or nothing: no byte is moved there, and each is copied twice, as what a read returned
    and as what paramiko gets. It asks for packets' heads and bodies."""
    channel = Channel()
    sock = BufferedSocket(cast(Any, channel), WINDOW)
    fed = taken = 0
    head = False
    while fed < total:
        while fed == taken or fed + size - taken <= min(full, total):
            channel.pipe.feed(bytes(size))
            fed += size
        head = not head
        taken += len(sock.recv(16 if head else 32768))
    assert channel.moved == 0
    assert taken <= sum(map(len, channel.got)) <= fed


def test_a_read_of_the_link_leaves_nothing_in_the_channels_buffer() -> None:
    assert READ_SIZE >= WINDOW


# ---------------------------------------------------------------------------------------------- the link's stream


class Pieces(Stream):
    """A stream that is read in these pieces. It ends when it is closed, as what was not processed then is dropped."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._closed = threading.Event()

    def read(self, size: int, /) -> bytes:
        piece = next(self._pieces, b"")
        if not piece:
            self._closed.wait(DEADLINE)
        return piece

    def write(self, data: bytes, /) -> None:
        raise AssertionError("nothing is written")

    def close(self) -> None:
        self._closed.set()

    def stderr_tail(self) -> str:
        return ""


class Reading:
    """The hub's end of a stream with such pieces: how many frames came, and what was moved and executed."""

    def __init__(self, pieces: list[bytes], frame: bytes) -> None:
        self.frames = self.most = self._taken = 0
        self.moves = Moves()
        self._size = len(frame)
        asyncio.run(asyncio.wait_for(self._run(pieces), DEADLINE))

    async def _run(self, pieces: list[bytes]) -> None:
        held = {id(piece) for piece in pieces}
        stream = Pieces(iter([MAGIC, *pieces]))
        loop = asyncio.get_running_loop()

        def received(frame: Frame) -> None:
            self.frames += 1
            self._taken += self._size
            waiting = list(threads._chunks)
            self.most = max(self.most, sum(map(len, waiting)))
            assert all(id(view.obj) in held for view in waiting), "what waits is where it was read"
            if not threads._frames:
                self.moves.note(threads._reader._buffer, self._taken)

        threads = StreamThreads(stream, loop, received, lambda: None, "pieces")
        count = sum(map(len, pieces)) // self._size
        while self.frames < count and not threads.ended.done():
            await asyncio.sleep(0)
        threads.close()


@pytest.mark.parametrize(
    ("size", "total"), [(1, 20_000), (1000, 20 * MB), (MB, 200 * MB), (READ_SIZE, 200 * MB)]
)
def test_the_stream_of_a_link(size: int, total: int) -> None:
    frame = Frame(Kind.DATA, 1, 1, 0, bytes(CHUNK if size > 1 else 100)).encode()
    data = memoryview(frame * (total // len(frame)))
    reading = Reading([bytes(data[at : at + size]) for at in range(0, len(data), size)], frame)
    assert reading.frames == len(data) // len(frame)
    assert reading.most <= 3 * max(size, READ_SIZE)
    assert reading.moves.bytes < 10 * total


def test_what_waits_for_the_loop_costs_no_more_when_it_is_more() -> None:
    def take(threads: StreamThreads, count: int) -> None:
        for _ in range(count):
            assert threads._next_frame() is not None

    async def counted(size: int) -> int:
        loop = asyncio.get_running_loop()
        threads = StreamThreads(Pieces(iter(())), loop, lambda frame: None, lambda: None, "none")
        threads._reader.feed(MAGIC)
        frame = Frame(Kind.DATA, 1, 1, 0, bytes(1000)).encode()
        threads._chunks.append(memoryview(frame * (size // len(frame))))
        threads.greeted.set_result(None)
        count = lines(take, threads, 500)
        threads.close()
        return count

    assert asyncio.run(counted(16 * MB)) == asyncio.run(counted(MB))


# ---------------------------------------------------------------------------------------------- front ends


def test_what_front_ends_have_not_received() -> None:
    """Each message costs the same, whatever is unread."""

    def send(unread: _UnreadBytes, kept: list[Any]) -> None:
        for _ in range(200):
            kept.append(unread.track([bytes(100)], 1))
            assert unread.has_room

    empty, full = _UnreadBytes(lambda: 0.0), _UnreadBytes(lambda: 0.0)
    kept: list[list[bytes | zmq.Frame]] = []
    while full.size < MAX_UNREAD - 2 * CHUNK:
        kept.append(full.track([bytes(CHUNK)], 1))
    assert lines(send, full, []) == lines(send, empty, [])


def test_the_number_of_things_that_are_tracked_is_bounded() -> None:
    """One in a chunk's bytes, up to the limit: that many are looked at when it is reached."""
    unread, kept = _UnreadBytes(lambda: 0.0), []
    while unread.has_room:
        kept.append(unread.track([bytes(100)], 1))
    assert len(unread._tracked) <= MAX_UNREAD // CHUNK + 1
