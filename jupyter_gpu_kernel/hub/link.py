"""One link to one work node: dial, greet, ping, route frames to attachments and back, reconnect.

It is given a `dial` function and knows no SSH: a stream is read, write, close. Everything here runs on the hub's
loop; the blocking stream is read by one thread and written by another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import AgentError, ConnectError, GpuKernelError
from ..wire.connection import Connection, ProtocolError
from ..wire.frames import CHUNK, Frame, FrameError, FrameReader, Kind, json_frame

PING_EVERY = 3.0
DEAD_AFTER = 9.0
"""Seconds without any byte after which the peer counts as dead (pings go out all the while)."""
GREETING_WITHIN = 25.0
READ = 4 * 1024 * 1024
"""More than the SSH window: paramiko is slow when a read leaves something behind."""
_WRITE_AHEAD = 2 * CHUNK


class Stream(Protocol):
    """The seam to the outside: what an SSH channel, a local pipe and a test's breakable pipe have in common."""

    def read(self, size: int, /) -> bytes:
        """Blocks; b"" at the end."""

    def write(self, data: bytes, /) -> None:
        """Blocks until all is taken; OSError when the stream is gone."""

    def close(self) -> None:
        """From any thread; unblocks `read` and `write`."""


class Attachment(Protocol):
    """What a link carries for one kernel."""

    connection: Connection
    kernel_id: str

    def open_request(self) -> dict[str, Any]:
        """More words for the agent's `open`: {"create": settings} where the keeper may have to be started."""

    def deliver(self, data: bytes) -> None:
        """A message from the keeper."""

    def attached(self) -> None:
        """The stream to the keeper is there (again)."""

    def detached(self, reason: str) -> None:
        """The link is down; it will come back by itself."""

    def lost(self, error: GpuKernelError) -> None:
        """There is no keeper to come back to."""


class Link:
    """`await up()`, `attach(…)`, `await request(…)`, `close()`. `describe` names it in messages."""

    def __init__(self, name: str, dial: Callable[[bool], Stream], log: logging.Logger) -> None:
        self.name = name
        self.state = "connecting"
        self.problem: GpuKernelError | None = None
        self._dial = dial
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._attachments: dict[int, Attachment] = {}
        self._numbers = itertools.count(1)
        self._requests: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._wire: _Wire | None = None
        self._changed = asyncio.Event()
        self._retry_now = asyncio.Event()
        self._was_up = False
        self._task = self._loop.create_task(self._run())

    def __repr__(self) -> str:
        return f"<Link {self.name} {self.state} attachments={len(self._attachments)}>"

    @property
    def in_use(self) -> bool:
        """Whether a kernel is attached."""
        return bool(self._attachments)

    async def up(self) -> None:
        """Returns once the link is up; raises why it cannot be."""
        while self.state != "up":
            if self.problem is not None:
                raise self.problem
            self._changed.clear()
            await self._changed.wait()

    async def request(self, do: str, timeout: float = 30.0, **more: Any) -> dict[str, Any]:
        """The agent's answer to a request. Raises AgentError when it refuses or does not answer."""
        await self.up()
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._requests[number] = future
        self._write(json_frame(Kind.REQUEST, dict(more, do=do), number=number))
        try:
            answer = await asyncio.wait_for(future, timeout)
        except asyncio.TimeoutError:
            raise AgentError(f"the node's agent did not answer “{do}” in {timeout:.0f} s", hop=self.name) from None
        finally:
            self._requests.pop(number, None)
        if "error" in answer:
            raise refusal(answer["error"], self.name)
        return answer

    def attach(self, attachment: Attachment) -> None:
        """From now on this link carries the kernel, over every reconnect, until `release`."""
        number = next(self._numbers)
        self._attachments[number] = attachment
        if self.state == "up":
            self._loop.create_task(self._open(number, attachment))

    def release(self, attachment: Attachment) -> None:
        """The kernel is no longer carried; its keeper lives on."""
        for number, known in list(self._attachments.items()):
            if known is attachment:
                del self._attachments[number]
                known.connection.closed()
                if self.state == "up":
                    self._write(Frame(Kind.CLOSE, number))

    def pump(self) -> None:
        """Writes what attachments have to say; call it after `connection.send`."""
        wire = self._wire
        if wire is None:
            return
        progress = True
        while progress and wire.queued < _WRITE_AHEAD:
            progress = False
            for attachment in list(self._attachments.values()):  # a chunk each in turn: nobody starves
                for frame in attachment.connection.outgoing(CHUNK):
                    wire.write(frame.encode())
                    progress = True

    def retry(self) -> None:
        """Tries again at once, if it waits for the next attempt."""
        self._retry_now.set()

    async def close(self) -> None:
        """Ends the link; keepers live on."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._drop("closed")

    # -------------------------------------------------------------------------------------- the life of a link

    async def _run(self) -> None:
        delay = 0.2
        while True:
            try:
                await self._connect()
                delay = 0.2
                assert self._wire is not None
                reason = await self._watch(self._wire)
            except GpuKernelError as error:
                reason = error.cause
                self._set("away" if self._was_up else "failed", error)
                if not self._was_up:
                    return
            except Exception as error:  # a fault of ours: say it where somebody waits, and go on trying
                self._log.exception("%s: the link failed", self.name)
                reason = f"{type(error).__name__}: {error}"
                self._set("away" if self._was_up else "failed", ConnectError(reason, hop=self.name))
                if not self._was_up:
                    return
            self._drop(reason)
            self._log.warning("%s: link down: %s", self.name, reason)
            self._retry_now.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._retry_now.wait(), delay * random.uniform(0.7, 1.3))
            delay = min(delay * 2, 5.0)

    async def _connect(self) -> None:
        stream = await asyncio.to_thread(self._dial, self._was_up)
        wire = self._wire = _Wire(stream, self._loop, self._received, self.pump, self.name)
        try:
            await asyncio.wait_for(asyncio.shield(wire.greeted), GREETING_WITHIN)
        except asyncio.TimeoutError:
            wire.close()
            raise wire.no_greeting() from None
        self._was_up = True
        self._set("up", None)
        self._log.info("%s: link up", self.name)
        for number, attachment in list(self._attachments.items()):
            self._loop.create_task(self._open(number, attachment))

    async def _watch(self, wire: _Wire) -> str:
        """Pings until the stream is gone; returns why."""
        for number in itertools.count(1):
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(asyncio.shield(wire.ended), PING_EVERY)
            if time.monotonic() - wire.heard > DEAD_AFTER:
                return f"nothing heard for {DEAD_AFTER:.0f} s"
            wire.write(Frame(Kind.PING, number=number).encode())
        raise AssertionError("unreachable")

    async def _open(self, number: int, attachment: Attachment) -> None:
        wire = self._wire
        try:
            request = dict(attachment.open_request(), kernel=attachment.kernel_id, attachment=number)
            await self.request("open", timeout=90, **request)
        except Refusal as error:
            if wire is self._wire and self._attachments.pop(number, None) is not None:
                attachment.lost(error)
            return
        except AgentError as error:  # no answer: a stuck agent is as good as a dead one
            if wire is self._wire and wire is not None:
                wire.end(error.cause)
            return
        except GpuKernelError:
            return  # the link went down meanwhile and tells so itself
        if wire is self._wire and number in self._attachments:
            attachment.connection.opened(number)
            attachment.attached()
            self.pump()

    def _drop(self, reason: str) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        if self.state == "up":
            self._set("away", None)
        for future in self._requests.values():
            if not future.done():
                future.set_exception(ConnectError(f"the link went down: {reason}", hop=self.name))
        for attachment in list(self._attachments.values()):
            attachment.connection.closed()
            attachment.detached(reason)

    def _set(self, state: str, problem: GpuKernelError | None) -> None:
        self.state = state
        self.problem = problem
        self._changed.set()

    # -------------------------------------------------------------------------------------- frames

    def _write(self, frame: Frame) -> None:
        if self._wire is not None:
            self._wire.write(frame.encode())

    def _received(self, frame: Frame) -> None:
        if frame.kind is Kind.REPLY:
            future = self._requests.get(frame.number)
            if future is not None and not future.done():
                future.set_result(frame.json())
        elif frame.attachment:
            self._to_attachment(frame)

    def _to_attachment(self, frame: Frame) -> None:
        attachment = self._attachments.get(frame.attachment)
        if attachment is None:
            return
        if frame.kind is Kind.CLOSE:
            attachment.connection.closed()
            self._loop.create_task(self._open(frame.attachment, attachment))
            return
        try:
            for data in attachment.connection.receive(frame):
                attachment.deliver(data)
        except ProtocolError as error:
            self._log.error("%s: kernel %s: %s", self.name, attachment.kernel_id, error)
            attachment.connection.closed()
            self._write(Frame(Kind.CLOSE, frame.attachment))
            self._loop.create_task(self._open(frame.attachment, attachment))


class _Wire:
    """A stream with its two threads, seen from the loop."""

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
        self.heard = time.monotonic()
        self.queued = 0
        self._stream = stream
        self._loop = loop
        self._on_frame = on_frame
        self._on_written = on_written
        self._name = name
        self._reader = FrameReader()
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for target in (self._read, self._write):
            threading.Thread(target=target, name=f"link-{name}", daemon=True).start()

    def write(self, data: bytes) -> None:
        self.queued += len(data)
        self._queue.put(data)

    def close(self) -> None:
        self._queue.put(None)
        threading.Thread(target=self._stream.close, daemon=True).start()  # closing may block on a dead link
        self.end("closed")

    def no_greeting(self) -> AgentError:
        """Why there was no greeting, with what came instead."""
        said = self._reader.noise.decode("utf-8", "replace").strip()[-500:]
        tail = getattr(self._stream, "stderr_tail", lambda: "")().strip()[-1000:]
        heard = "\n".join(text for text in (said, tail) if text)
        return AgentError(
            "the node's agent did not greet" + (f"; it said:\n{heard}" if heard else ""),
            hop=self._name,
            remedy="Check the node with “jupyter gpu-kernel check NAME”.",
        )

    def _read(self) -> None:
        reason = "the connection was closed"
        try:
            while data := self._stream.read(READ):
                self._call(self._received, data)
        except (OSError, EOFError) as error:
            reason = str(error) or type(error).__name__
        self._call(self.end, reason)

    def _write(self) -> None:
        try:
            while (data := self._queue.get()) is not None:
                self._stream.write(data)
                self._call(self._written, len(data))
        except (OSError, EOFError) as error:
            self._call(self.end, str(error) or type(error).__name__)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the hub ends
            self._loop.call_soon_threadsafe(function, *args)

    def _received(self, data: bytes) -> None:
        if self.ended.done():
            return
        self.heard = time.monotonic()
        try:
            frames = self._reader.feed(data)
            if self._reader.greeted and not self.greeted.done():
                self.greeted.set_result(None)
            for frame in frames:
                self._on_frame(frame)
        except FrameError as error:
            self.end(str(error))
        self._on_written()  # acknowledgements are due

    def _written(self, size: int) -> None:
        self.queued -= size
        self._on_written()

    def end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
        if not self.greeted.done():
            self.greeted.set_exception(self.no_greeting())


class Refusal(AgentError):
    """The agent refused a request; `code` is its one word for why."""

    code = ""


def refusal(error: dict[str, Any], hop: str) -> Refusal:
    """The agent's {"code", "text"} as an error with a remedy."""
    code, text = str(error.get("code")), str(error.get("text"))
    remedies = {
        "gone": "Start a new kernel; “jupyter gpu-kernel logs ID” tells what happened to the old one.",
        "keeper": "Check the node's Python with “jupyter gpu-kernel check NAME”.",
        "cwd": "Change --cwd in the kernelspec (jupyter gpu-kernel add … --replace).",
    }
    refused = Refusal(text, hop=hop, remedy=remedies.get(code, ""))
    refused.code = code
    return refused
