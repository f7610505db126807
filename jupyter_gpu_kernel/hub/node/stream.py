"""The byte stream to a work node, and the two threads that join one to the hub's loop.

A stream blocks: one thread reads it, another writes it, and the loop sees frames come in and counts what is
still to be written. This file knows no SSH, no attachments, and does not reconnect.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ...errors import AgentError
from ...wire.frames import CHUNK, Frame, FrameError, FrameReader
from .. import inert

READ = 4 * 1024 * 1024
"""More than the SSH window: paramiko is slow when a read leaves something behind."""
READS_AHEAD = 2
"""Reads that the loop has not worked through yet; then the stream waits, and with it the node."""
TURN = 0.005
"""Seconds of work on one stream's frames, after which other streams and front ends have their turn."""


class Stream(Protocol):
    """The seam to the outside: what an SSH channel, a local pipe and a test's pipe have in common."""

    def read(self, size: int, /) -> bytes:
        """Blocks; b"" at the end."""

    def write(self, data: bytes, /) -> None:
        """Blocks until all is taken; OSError when the stream is gone."""

    def close(self) -> None:
        """From any thread; unblocks `read` and `write`."""


class StreamThreads:
    """A stream with its two threads, seen from the loop. `queued` bytes are not written yet."""

    def __init__(
        self,
        stream: Stream,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[Frame], None],
        on_written: Callable[[], None],
        name: str,
    ) -> None:
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.last_received = time.monotonic()
        self.queued = 0
        self._stream = stream
        self._loop = loop
        self._on_frame = on_frame
        self._on_written = on_written
        self._name = name
        self._reader = FrameReader()
        self._unread: deque[memoryview] = deque()
        self._frames: deque[Frame] = deque()
        self._working = False
        self._room = threading.Semaphore(READS_AHEAD)
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for target in (self._read, self._write):
            threading.Thread(target=target, name=f"link-{name}", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Queues bytes."""
        self.queued += len(data)
        self._queue.put(data)

    def close(self) -> None:
        """Ends both threads, and the stream."""
        self._queue.put(None)
        threading.Thread(target=self._stream.close, daemon=True).start()  # closing may block on a dead link
        self.end("closed")

    def no_greeting(self) -> AgentError:
        """Why there was no greeting, with what came instead."""
        said = self._reader.noise.decode("utf-8", "replace").strip()[-500:]
        tail = getattr(self._stream, "stderr_tail", lambda: "")().strip()[-1000:]
        heard = "\n".join(inert.block(text) for text in (said, tail) if text)
        return AgentError(
            "the node's agent did not greet" + (f"; it said:\n{heard}" if heard else ""),
            hop=self._name,
            remedy="Check the node with “jupyter gpu-kernel check NAME”.",
        )

    def _read(self) -> None:
        reason = "the connection was closed"
        try:
            while self._room.acquire() and (data := self._stream.read(READ)):
                self._call(self._received, data)
        except Exception as error:  # whatever a transport raises: this stream is over
            reason = str(error) or type(error).__name__
        self._call(self.end, reason)

    def _write(self) -> None:
        try:
            while (data := self._queue.get()) is not None:
                self._stream.write(data)
                self._call(self._written, len(data))
        except Exception as error:  # whatever a transport raises: this stream is over
            self._call(self.end, str(error) or type(error).__name__)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the hub ends
            self._loop.call_soon_threadsafe(function, *args)

    def _received(self, data: bytes) -> None:
        if self.ended.done():
            return self._room.release()  # read on, until the stream is closed
        self.last_received = time.monotonic()
        self._unread.append(memoryview(data))
        if not self._working:
            self._work()

    def _work(self) -> None:
        """Hands out frames; what is left after one turn has to wait for the next."""
        until = time.monotonic() + TURN
        frame = None
        try:
            while (frame := self._next()) is not None and not self.ended.done():
                self._on_frame(frame)
                if time.monotonic() > until:
                    break
        except FrameError as error:
            self.end(str(error))
        self._working = frame is not None and not self.ended.done()
        if self._working:
            self.last_received = time.monotonic()
            self._loop.call_soon(self._work)
        self._on_written()  # acknowledgements are due

    def _next(self) -> Frame | None:
        while not self._frames and self._unread:
            data = self._unread.popleft()
            self._frames.extend(self._reader.feed(bytes(data[:CHUNK])))
            if len(data) > CHUNK:
                self._unread.appendleft(data[CHUNK:])
            else:
                self._room.release()
            if self._reader.greeted and not self.greeted.done():
                self.greeted.set_result(None)
        return self._frames.popleft() if self._frames else None

    def _written(self, size: int) -> None:
        self.queued -= size
        self._on_written()

    def end(self, reason: str) -> None:
        """The stream is no use any more: fulfils `ended`, and fails `greeted` if that is still open."""
        self._room.release(READS_AHEAD)  # the thread may wait for room
        if not self.ended.done():
            self.ended.set_result(reason)
        if not self.greeted.done():
            self.greeted.set_exception(self.no_greeting())
            self.greeted.exception()  # whoever waited has it; if nobody did, that is no fault
