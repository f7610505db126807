"""A stream's two threads: what comes is handed out in turns, and only so much is read ahead."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from played_agent import (
    DEADLINE,
    Socket,
)

from jupyter_gpu_kernel.hub.node import stream_threads as stream_module
from jupyter_gpu_kernel.hub.node.stream_threads import MAX_PENDING_READS, WRITE_AHEAD, StreamThreads
from jupyter_gpu_kernel.wire.stream.frames import MAGIC, Frame, Kind


def test_the_loop_works_at_what_comes_bit_by_bit() -> None:
    """What comes at once is handed out in turns, and only so much is read ahead."""
    frames = 200_000
    ours, theirs = socket.socketpair()

    async def main() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        got = turns = 0

        def on_frame(frame: Frame) -> None:
            nonlocal got
            got += 1

        wire = StreamThreads(Socket(theirs), loop, on_frame, lambda: None, "gpu2")
        data = MAGIC + Frame(Kind.PONG).encode() * frames
        sent = asyncio.ensure_future(asyncio.to_thread(ours.sendall, data))
        while got < frames:
            await asyncio.sleep(0)
            turns += 1
        await sent
        wire.close()
        return got, turns

    got, turns = asyncio.run(main())
    assert got == frames and turns > 5
    ours.close()
    theirs.close()


def test_others_have_their_turn_while_one_read_is_worked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """All frames come in a single read, and a turn is over after each of them."""
    monkeypatch.setattr(stream_module, "MAX_TURN", -1.0)
    frames = 50
    ours, theirs = socket.socketpair()

    class OneRead(Socket):
        first = True

        def read(self, size: int, /) -> bytes:
            if not self.first:
                return super().read(size)
            self.first = False
            return MAGIC + Frame(Kind.PONG).encode() * frames

    async def main() -> list[int]:
        turns = 0
        at: list[int] = []
        wire = StreamThreads(
            OneRead(theirs), asyncio.get_running_loop(), lambda frame: at.append(turns), lambda: None, "gpu2"
        )
        while len(at) < frames:
            await asyncio.sleep(0)
            turns += 1
        wire.close()
        return at

    at = asyncio.run(main())
    assert len(set(at)) == frames, "frames were worked through without a turn for others between them"
    ours.close()
    theirs.close()


def test_so_much_is_read_ahead_and_no_more() -> None:
    """What the loop has not worked through waits in the stream, and so at the node."""

    class Endless(Socket):
        reads = 0

        def read(self, size: int, /) -> bytes:
            if self.closed.is_set():
                return b""
            self.reads += 1
            return MAGIC if self.reads == 1 else Frame(Kind.PONG).encode()  # one frame a read

    ours, theirs = socket.socketpair()
    stream = Endless(theirs)

    ahead: list[int] = []

    def on_frame(frame: Frame) -> None:
        worked_through = len(ahead) + 2  # with the greeting, and this one
        ahead.append(stream.reads - worked_through)

    async def main() -> None:
        wire = StreamThreads(stream, asyncio.get_running_loop(), on_frame, lambda: None, "gpu2")
        while len(ahead) < 1000:
            await asyncio.sleep(0)
        wire.close()

    asyncio.run(main())
    assert max(ahead) <= MAX_PENDING_READS
    ours.close()
    theirs.close()


def test_the_thread_that_reads_ends_with_the_stream_also_if_so_much_was_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was read ahead is not worked through any more."""
    monkeypatch.setattr(stream_module, "MAX_TURN", -1.0)  # a turn is one frame, so reads pile up

    class Endless(Socket):
        reads = 0

        def read(self, size: int, /) -> bytes:
            if self.closed.is_set():
                return b""
            self.reads += 1
            return MAGIC if self.reads == 1 else Frame(Kind.PONG).encode() * 100

    ours, theirs = socket.socketpair()
    stream = Endless(theirs)

    async def main() -> list[threading.Thread]:
        before = threading.enumerate()
        wire = StreamThreads(stream, asyncio.get_running_loop(), lambda frame: None, lambda: None, "gpu2")
        threads = [one for one in threading.enumerate() if one not in before]
        while len(wire._chunks) < MAX_PENDING_READS:
            await asyncio.sleep(0)
        wire.close()
        assert await asyncio.to_thread(stream.closed.wait, DEADLINE)
        return threads

    for thread in asyncio.run(main()):
        thread.join(DEADLINE)
        assert not thread.is_alive()
    ours.close()
    theirs.close()


def test_the_loop_is_told_of_room_that_it_wanted_and_of_nothing_else() -> None:
    """Each message of a cell would wake the loop once more."""

    class Slow(Socket):
        passes = threading.Event()
        written = threading.Event()

        def write(self, data: bytes, /) -> None:
            if len(data) > 1:
                assert self.passes.wait(DEADLINE)
            self.written.set()

    ours, theirs = socket.socketpair()
    stream = Slow(theirs)

    async def main() -> None:
        progress = asyncio.Event()
        wire = StreamThreads(stream, asyncio.get_running_loop(), lambda frame: None, progress.set, "gpu2")
        assert wire.has_room()
        wire.write(b"a")
        assert await asyncio.to_thread(stream.written.wait, DEADLINE)
        await asyncio.sleep(0)
        assert not progress.is_set()
        wire.write(bytes(WRITE_AHEAD))
        assert not wire.has_room()
        stream.passes.set()
        await asyncio.wait_for(progress.wait(), DEADLINE)
        assert wire.has_room()
        wire.close()

    asyncio.run(main())
    ours.close()
    theirs.close()


def test_what_came_before_the_end_is_processed() -> None:
    """Data and the end come at once, as when a connection breaks."""
    ours, theirs = socket.socketpair()

    class AtOnce(Socket):
        data = MAGIC + Frame(Kind.PONG).encode()

        def read(self, size: int, /) -> bytes:
            data, self.data = self.data, b""
            return data

    async def main() -> tuple[list[Kind], bool, str]:
        got: list[Kind] = []
        wire = StreamThreads(
            AtOnce(theirs),
            asyncio.get_running_loop(),
            lambda frame: got.append(frame.kind),
            lambda: None,
            "gpu2",
        )
        reason = await asyncio.wait_for(wire.ended, DEADLINE)
        wire.close()
        return got, wire.greeted.exception() is None, reason

    assert asyncio.run(main()) == ([Kind.PONG], True, "the connection was closed")
    ours.close()
    theirs.close()
