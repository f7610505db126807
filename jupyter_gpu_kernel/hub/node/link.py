"""One link to one work node: dial, greet, ping, route frames to attachments and back, reconnect.

It is given a `dial` function and knows no SSH: a stream is read, write, close. Everything here runs on
the hub's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ...errors import AgentError, AuthError, ConnectError, GpuKernelError, HostKeyError
from ...wire.endpoint import OtherVersion, ProtocolError, State
from ...wire.frames import CHUNK, Frame, FrameError, Kind, json_frame
from ...wire.messages import MessageError
from .agent_errors import AgentRefusal, checked, refusal
from .attachment import Attachment
from .reopen_backoff import ReopenBackoff
from .stream import Stream, StreamThreads

_WRITE_AHEAD = 2 * CHUNK
_FINAL = ("gone", "taken", "protocol")
"""Refusals after which a kernel that was there cannot be come back to. All others may pass."""
_UNASKED = 50_000
"""Frames that belong to nothing, between two pings: more than may still be on their way for a released kernel."""


class LinkTimeouts(NamedTuple):
    """Seconds. `dead_after`: of silence, while pings go out; `retry`: between the first tries."""

    ping_every: float = 3.0
    dead_after: float = 9.0
    greeting_within: float = 25.0
    retry: float = 0.2
    retry_most: float = 5.0
    retry_refused: float = 60.0
    retry_refused_most: float = 600.0

    def pause(self, before: float, refused: bool) -> float:
        """Until the next try; `before`: the one before it, 0 if there was none. Servers ban those who knock on and on,
        usually at the fifth time in ten minutes."""
        first, most = self.retry, self.retry_most
        if refused:
            first, most = self.retry_refused, self.retry_refused_most
        return min(max(first, 2 * before), most)


CLOCKS = LinkTimeouts()
GO_ON = "Kernels there go on meanwhile; ask again in a moment."


class LinkDown(ConnectError):
    """The link went down before the agent's answer came."""


class Link:
    """`await up()`, `attach(…)`, `await request(…)`, `close()`. `describe` names it in messages.

    `was_up`: then it is dialled again and again while a kernel is attached, else what fails first is told and not
    repeated.
    """

    def __init__(
        self, name: str, dial: Callable[[bool], Stream], log: logging.Logger, clocks: LinkTimeouts = CLOCKS
    ) -> None:
        self.name = name
        self.state = "connecting"
        self.problem: GpuKernelError | None = None
        self._dial = dial
        self._log = log
        self._clocks = clocks
        self._loop = asyncio.get_running_loop()
        self._attachments: dict[int, Attachment] = {}
        self._reopenings: dict[int, ReopenBackoff] = {}
        self._unasked = 0
        self._numbers = itertools.count(1)
        self._requests: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wire: StreamThreads | None = None
        self._changed = asyncio.Event()
        self._retry_now = asyncio.Event()
        self.was_up = False
        self.heard = time.monotonic()  # for the last time, before the link went down
        self._closed = False
        self._task = self._loop.create_task(self._run())

    def __repr__(self) -> str:
        return f"<Link {self.name} {self.state} attachments={len(self._attachments)}>"

    @property
    def in_use(self) -> bool:
        """Whether a kernel is attached."""
        return bool(self._attachments)

    @property
    def kernel_ids(self) -> list[str]:
        """The kernels that are attached, or about to be."""
        return [attachment.kernel_id for attachment in self._attachments.values()]

    async def up(self) -> None:
        """Returns once the link is up; raises why it cannot be."""
        while self.state != "up":
            if self.problem is not None:
                raise self.problem
            self._changed.clear()
            self._retry_now.set()
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
            raise AgentError(
                f"the node's agent did not answer “{do}” in {timeout:.0f} s", hop=self.name
            ) from None
        finally:
            self._requests.pop(number, None)
        return checked(do, answer, self.name)

    def attach(self, attachment: Attachment) -> None:
        """From now on this link carries the kernel, over every reconnect, until `release`."""
        self._attachments[next(self._numbers)] = attachment
        if self.state == "up":
            self._open_again(attachment)
        else:
            self._retry_now.set()

    def release(self, attachment: Attachment) -> None:
        """The kernel is no longer carried; its keeper lives on."""
        for number, known in list(self._attachments.items()):
            if known is attachment:
                self._forget(number)
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
        """Tries again at once, if it waits for the next attempt; `up` then tells how that one went."""
        if self.state == "away":
            self.problem = None
        self._retry_now.set()

    async def close(self) -> None:
        """Ends the link; keepers live on."""
        self._closed = True
        while not self._task.done():  # before Python 3.12 wait_for may swallow one cancellation
            self._task.cancel()
            await asyncio.wait([self._task], timeout=0.1)
        self._drop("closed")
        self._set("failed", ConnectError("the link was closed", hop=self.name))

    # -------------------------------------------------------------------------- the life of a link

    async def _run(self) -> None:
        delay = 0.0
        while True:
            try:
                wire = await self._connect()
                up_since = time.monotonic()
                reason = await self._watch(wire)
                if time.monotonic() - up_since > self._clocks.retry_most:
                    delay = 0.0
            except Exception as error:
                if not isinstance(error, GpuKernelError):  # a fault of ours: say it where somebody waits
                    self._log.exception("%s: the link failed", self.name)
                    error = ConnectError(f"{type(error).__name__}: {error}", hop=self.name)
                reason = error.cause
                self._set("away" if self.was_up else "failed", error)
            self._drop(reason)
            if not self.was_up:
                return
            self._log.warning("%s: link down: %s", self.name, reason)
            self._retry_now.clear()
            delay = self._clocks.pause(delay, isinstance(self.problem, AuthError | HostKeyError))
            pause = delay * random.uniform(0.7, 1.3) if self.in_use else None  # None: until somebody needs it
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._retry_now.wait(), pause)

    async def _connect(self) -> StreamThreads:
        stream = await asyncio.to_thread(self._dialled)
        wire = self._wire = StreamThreads(stream, self._loop, self._received, self.pump, self.name)
        try:
            await asyncio.wait_for(asyncio.shield(wire.greeted), self._clocks.greeting_within)
        except asyncio.TimeoutError:
            raise wire.no_greeting() from None
        self.was_up = True
        self._set("up", None)
        self._log.info("%s: link up", self.name)
        for attachment in list(self._attachments.values()):
            self._open_again(attachment)
        return wire

    def _dialled(self) -> Stream:
        stream = self._dial(self.was_up)
        if self._closed:  # meanwhile: nobody will ask for it
            stream.close()
        return stream

    async def _watch(self, wire: StreamThreads) -> str:
        """Pings until the stream is gone; returns why."""
        clocks = self._clocks
        for number in itertools.count(1):
            left = wire.heard + clocks.dead_after - time.monotonic()
            if left <= 0:
                return f"nothing heard for {clocks.dead_after:g} s"
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(asyncio.shield(wire.ended), min(clocks.ping_every, left))
            self._unasked = 0
            wire.write(Frame(Kind.PING, number=number).encode())
        raise AssertionError("unreachable")

    def _open_again(self, attachment: Attachment) -> None:
        self._spawn(self._open(self._renumber(attachment), attachment))

    def _renumber(self, attachment: Attachment) -> int:
        """A new number, so that what still comes under the old one is told from the new."""
        reopening = ReopenBackoff(lambda before: self._clocks.pause(before, refused=False))
        for number, known in list(self._attachments.items()):
            if known is attachment:
                reopening = self._reopenings.get(number, reopening)
                self._forget(number)
        number = next(self._numbers)
        self._attachments[number], self._reopenings[number] = attachment, reopening
        attachment.connection.closed()
        return number

    def _forget(self, number: int) -> None:
        self._attachments.pop(number, None)
        self._reopenings.pop(number, None)

    def _reopen(self, attachment: Attachment, reason: str) -> None:
        """Its keeper hung up, or broke the rules. What fails again and again is tried ever more seldom."""
        number = self._renumber(attachment)
        pause = self._reopenings[number].pause()
        if self._reopenings[number].hopeless:
            text = f"the keeper of kernel {attachment.kernel_id} accepts no connection: {reason}"
            return self._lose(number, refusal({"code": "hangs up", "text": text}, self.name))
        if pause:
            attachment.detached(reason)
        self._loop.call_later(pause, self._open_if_closed, number)

    def _lose(self, number: int, error: AgentRefusal) -> None:
        attachment = self._attachments[number]
        error.remedy = error.remedy.replace(" ID", f" {attachment.kernel_id}")
        self._forget(number)
        attachment.connection.closed()
        attachment.lost(error)

    async def _open(self, number: int, attachment: Attachment) -> None:
        wire, request = self._wire, attachment.open_request()
        try:
            more = {"kernel": attachment.kernel_id, "attachment": number, "here": self.kernel_ids}
            if "attach" in request:  # before the keeper dismisses the other, which might be back before us
                self._take_from_others(attachment)
            answer = await self.request("open", timeout=90, **request, **more)
        except AgentRefusal as error:
            comes_back = "create" not in request and "attach" not in request
            if self._attachments.get(number) is not attachment:
                return
            if error.code == "busy" or (comes_back and error.code not in _FINAL):
                return self._reopen(attachment, error.cause)
            return self._lose(number, error)
        except AgentError as error:  # no answer: a stuck agent is as good as a dead one
            if wire is not None:
                wire.end(error.cause)
            return
        except GpuKernelError:
            return  # the link went down meanwhile and tells so itself
        if wire is not self._wire:
            return
        if number not in self._attachments:  # released, or opened again, meanwhile
            return self._write(Frame(Kind.CLOSE, number))
        attachment.kernel_id = answer.get("kernel", attachment.kernel_id)
        self._take_from_others(attachment)
        attachment.connection.opened(number)
        self.pump()

    def _take_from_others(self, attachment: Attachment) -> None:
        """A keeper has one attachment. Of two for one kernel, as when its notebook is opened once more after a drop,
        each would come back whenever the other has come."""
        for number, other in list(self._attachments.items()):
            if other is not attachment and other.kernel_id == attachment.kernel_id:
                self._write(Frame(Kind.CLOSE, number))
                text = f"kernel {other.kernel_id} was taken over by another front end of its notebook"
                self._lose(number, refusal({"code": "taken", "text": text}, self.name))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)

    def _drop(self, reason: str) -> None:
        if self._wire is not None:
            self.heard = self._wire.heard
            self._wire.close()
            self._wire = None
        if self.state == "up":
            self._set("away", None)
        for future in self._requests.values():
            if not future.done():
                future.set_exception(LinkDown(f"the link went down: {reason}", hop=self.name, remedy=GO_ON))
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
        if frame.kind is Kind.REPLY and frame.number in self._requests:
            return _fulfil(self._requests[frame.number], frame, self.name)
        if frame.attachment in self._attachments:
            return self._to_attachment(self._attachments[frame.attachment], frame)
        self._unasked += 1
        if self._unasked > _UNASKED and self._wire is not None:
            self._wire.end("the node sends frames without end that nobody asked for")

    def _to_attachment(self, attachment: Attachment, frame: Frame) -> None:
        connection = attachment.connection
        if frame.kind is Kind.CLOSE:
            return self._reopen(attachment, "it hung up")
        try:
            for data in connection.receive(frame):
                self._deliver(attachment, data)
            if frame.kind is Kind.HELLO and connection.state is State.OPEN:
                self._reopenings[frame.attachment].opened()
                attachment.attached()
        except OtherVersion as error:
            text = f"the keeper of kernel {attachment.kernel_id} is another version's: {error}"
            self._write(Frame(Kind.CLOSE, frame.attachment))
            self._lose(frame.attachment, refusal({"code": "protocol", "text": text}, self.name))
        except (ProtocolError, MessageError) as error:
            self._log.error("%s: kernel %s: %s", self.name, attachment.kernel_id, error)
            self._write(Frame(Kind.CLOSE, frame.attachment))
            self._reopen(attachment, str(error))

    def _open_if_closed(self, number: int) -> None:
        attachment = self._attachments.get(number)
        if self.state == "up" and attachment is not None:  # else released, or opened meanwhile
            self._open_again(attachment)

    def _deliver(self, attachment: Attachment, data: bytes) -> None:
        try:
            attachment.deliver(data)
        except (ProtocolError, MessageError):
            raise
        except Exception:  # a fault of ours costs this message, not those after it
            self._log.exception("%s: kernel %s: a message was lost", self.name, attachment.kernel_id)


def _fulfil(future: asyncio.Future[dict[str, Any]], frame: Frame, hop: str) -> None:
    if future.done():
        return
    try:
        future.set_result(frame.json())
    except FrameError as error:
        future.set_exception(
            AgentError(f"the node's agent gave no answer that can be read: {error}", hop=hop)
        )
