"""The two threads that connect the byte stream to a work node with the hub's event loop.

A stream blocks: one thread reads it, another one writes it. The event loop receives frames, and knows whether it may
write more. This module knows no SSH and no attachments, and does not reconnect.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ...errors import AgentError
from ...wire.stream.frames import CHUNK, Frame, FrameError, FrameReader
from .. import sanitize
from ..transport.stream import READ_SIZE, Stream

MAX_PENDING_READS = 2
"""Reads that the loop has not processed yet. Beyond that the thread stops reading, so the node stops sending."""
WRITE_AHEAD = 2 * CHUNK
"""Bytes that may wait for the writing thread."""
MAX_TURN = 0.005
"""Seconds in which one stream's frames are processed, before other streams and front ends have their turn."""


class StreamThreads:
    """A stream with its two threads, for use on the event loop."""

    def __init__(
        self,
        stream: Stream,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[Frame], None],
        on_progress: Callable[[], None],
        name: str,
    ) -> None:
        """`on_progress()` is called when frames were received, and when there is room again after `has_room` was
        false."""
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.last_received = loop.time()
        self._stream = stream
        self._loop = loop
        self._on_frame = on_frame
        self._on_progress = on_progress
        self._name = name
        self._reader = FrameReader()
        self._chunks: deque[memoryview] = deque()
        self._frames: deque[Frame] = deque()
        self._scheduled = False  # whether `_process` is about to be called
        self._read_slots = threading.Semaphore(MAX_PENDING_READS)
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._queued = 0  # bytes, in all: counted on the loop
        self._written = 0  # bytes, in all: counted in the writing thread
        self._room_wanted = False
        for target in (self._read, self._write):
            threading.Thread(target=target, name=f"link-{name}", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Queue data for the writing thread."""
        self._queued += len(data)
        self._queue.put(data)

    def has_room(self) -> bool:
        """Return whether less than WRITE_AHEAD bytes wait to be written. If not, `on_progress` is called when they
        do."""
        if self._has_room:
            return True
        self._room_wanted = True
        return self._has_room  # again, as the writing thread may not have seen that room is wanted

    @property
    def _has_room(self) -> bool:
        return self._queued - self._written < WRITE_AHEAD

    def close(self) -> None:
        """End both threads, and the stream."""
        self._queue.put(None)
        threading.Thread(target=self._stream.close, daemon=True).start()  # closing may block on a dead link
        self.end("closed")

    def no_greeting(self) -> AgentError:
        """Return the error for a missing greeting, with the output that came instead."""
        output = self._reader.noise.decode("utf-8", "replace").strip()[-500:]
        stderr = self._stream.stderr_tail().strip()[-1000:]
        shown = "\n".join(sanitize.block(text) for text in (output, stderr) if text)
        return AgentError(
            "the agent on the node did not send its greeting" + (f"; its output:\n{shown}" if shown else ""),
            hop=self._name,
            remedy="Check the node with “jupyter gpu-kernel check NAME”.",
        )

    def _read(self) -> None:
        try:
            while self._read_slots.acquire() and not self.ended.done():
                self._call(self._received, self._stream.read(READ_SIZE))
        except Exception as error:  # whatever a transport raises, this stream has ended
            self._call(self.end, str(error) or type(error).__name__)

    def _write(self) -> None:
        try:
            while (data := self._queue.get()) is not None:
                self._stream.write(data)
                self._written += len(data)
                if self._room_wanted and self._has_room:
                    self._room_wanted = False
                    self._call(self._on_progress)
        except Exception as error:  # whatever a transport raises, this stream has ended
            self._call(self.end, str(error) or type(error).__name__)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the hub ends
            self._loop.call_soon_threadsafe(function, *args)

    def _received(self, data: bytes) -> None:
        """Queue what was read; b"" is the end of the stream, which waits behind what has come before."""
        if data:
            self.last_received = self._loop.time()
        self._chunks.append(memoryview(data))
        if not self._scheduled:
            self._process()

    def _process(self) -> None:
        """Pass frames on for one turn. Go on in the next turn if some are left."""
        frame, until = None, self._loop.time() + MAX_TURN
        try:
            while (frame := self._next_frame()) is not None and not self.ended.done():
                self._on_frame(frame)
                if self._loop.time() > until:
                    break
        except FrameError as error:
            self.end(str(error))
        self._scheduled = frame is not None and not self.ended.done()
        if self._scheduled:
            self.last_received = self._loop.time()
            self._loop.call_soon(self._process)
        self._on_progress()  # acknowledgements are due

    def _next_frame(self) -> Frame | None:
        while not self._frames and self._chunks:
            data = self._chunks.popleft()
            if not data:
                self.end("the connection was closed")
                break
            self._frames.extend(self._reader.feed(data[:CHUNK]))
            if len(data) > CHUNK:
                self._chunks.appendleft(data[CHUNK:])
            else:
                self._read_slots.release()
            if self._reader.greeted and not self.greeted.done():
                self.greeted.set_result(None)
        return self._frames.popleft() if self._frames else None

    def end(self, reason: str) -> None:
        """Mark the stream as ended: resolve `ended` with the reason, and fail `greeted` if that is pending."""
        self._read_slots.release(MAX_PENDING_READS)  # the thread may wait for one
        if not self.ended.done():
            self.ended.set_result(reason)
        if not self.greeted.done():
            self.greeted.set_exception(self.no_greeting())
            self.greeted.exception()  # mark it as retrieved, as perhaps nobody waits for it
