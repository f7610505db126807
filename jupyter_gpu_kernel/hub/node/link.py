"""One link to one work node: dials, awaits the greeting, pings, asks the agent, and reconnects.

A link is given a `dial` function and knows no SSH; a stream is read, write and close. Everything here runs on the
hub's event loop. What the link carries for kernels is in `attachments.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import statistics
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ...errors import AgentError, AgentRefusal, AuthError, ConnectError, GpuKernelError, HostKeyError
from ...wire.runtime import Runtime
from ...wire.stream.endpoint import Endpoint
from ...wire.stream.frames import Frame, FrameError, Kind, json_frame
from .. import validate
from ..transport.stream import Stream
from .attachments import Attachment, Attachments
from .stream_threads import StreamThreads

_State = Literal["connecting", "up", "away", "failed"]
"""`connecting`: never up so far; `away`: down, and dialled again; `failed`: given up. `nodes` shows these words."""
_ROUND_TRIPS = 5
"""Pings of which the median round trip is taken."""
AGENT_WAITS = {"open": 180.0, "stop": 60.0}
"""Seconds for the answer to requests for which the agent waits itself, longer than for others: until a keeper has
started, after the checkout of pinned code was made; until a kernel has ended."""
_MAX_UNEXPECTED = 50_000
"""Frames without an attachment between two pings: more than can still be on their way for a released kernel."""


class LinkTimeouts(NamedTuple):
    """Durations in seconds. `dead_after`: the silence after which the link counts as lost, while pings go out. `retry`:
    the delay before the first attempt to reconnect, `retry_most`: before later ones, at most. `retry_refused` and
    `retry_refused_most`: these delays after a refused sign-in or host key."""

    ping_every: float = 3.0
    dead_after: float = 9.0
    greeting_within: float = 25.0
    retry: float = 0.2
    retry_most: float = 5.0
    retry_refused: float = 60.0
    retry_refused_most: float = 600.0

    def next_delay(self, previous: float, refused: bool = False) -> float:
        """Return the delay until the next attempt. `previous`: the delay before the last attempt, 0 if there was none.
        After a refused sign-in the delay is longer: servers block clients that fail often, usually after five attempts
        in ten minutes."""
        first, most = self.retry, self.retry_most
        if refused:
            first, most = self.retry_refused, self.retry_refused_most
        return min(max(first, 2 * previous), most)


TIMEOUTS = LinkTimeouts()
TRY_AGAIN_SOON = "Kernels there go on meanwhile; try again in a moment."


class LinkDown(ConnectError):
    """The link went down before the agent answered."""


class Link:
    """`await up()`, `attach(…)`, `await request(…)`, `close()`. `name` names the node in messages.

    A link that was up once reconnects as long as a kernel is attached. Before that, its first failure is final, unless
    `keep_trying` was called.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        dial: Callable[[bool], Stream],
        log: logging.Logger,
        timeouts: LinkTimeouts = TIMEOUTS,
        about: Callable[[], str] = str,
        carry: Callable[..., StreamThreads] = StreamThreads,
    ) -> None:
        """`dial(reconnecting)` returns a new stream, on a worker thread. `about()` returns over which connection it
        opened the last stream, in words. `carry` connects a stream with the
        event loop; a simulation passes another function."""
        self._runtime = runtime
        self.name = name
        self.state: _State = "connecting"
        self.problem: GpuKernelError | None = None
        self.root_id = ""
        """The identity of the agent's folder, which each answer of the node names; "" before the first answer."""
        self._dial = dial
        self._about = about
        self._carry = carry
        self._log = log
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._attachments = Attachments(runtime, name, self.request, timeouts.next_delay, log)
        self._unexpected = 0
        self._ping = (0, 0.0)  # the last one's number, and when it was sent
        self._round_trips: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self._numbers = itertools.count(1)
        self._requests: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._stream: StreamThreads | None = None
        self._changed = asyncio.Event()
        self._retry_now = asyncio.Event()
        self._reconnects = False
        self._waiting = 0  # calls of `until_up`
        self._last_received = self._loop.time()
        self._closed = False
        self._task = self._loop.create_task(self._run())

    def __repr__(self) -> str:
        return f"<Link {self.name} {self.state} attachments={len(self._attachments)}>"

    @property
    def in_use(self) -> bool:
        """Whether a kernel is attached, or somebody waits until the link is up."""
        return len(self._attachments) > 0 or self._waiting > 0

    @property
    def kernel_ids(self) -> list[str]:
        """The ids of the kernels that are attached, or about to be."""
        return self._attachments.kernel_ids

    @property
    def round_trip(self) -> float | None:
        """The seconds from a ping to its answer, the median of the last few; None while it is not known."""
        return statistics.median(self._round_trips) if self._round_trips else None

    @property
    def connection(self) -> str:
        """The connection of the last stream, in words: what speaks SSH, and the host keys; "" if that is not known."""
        return self._about()

    @property
    def last_received(self) -> float:
        """The time of the event loop at which something was received from the node for the last time."""
        return self._last_received if self._stream is None else self._stream.last_received

    async def up(self) -> None:
        """Return once the link is up. Raise the reason if an attempt to connect fails."""
        while self.state != "up":
            if self.problem is not None:
                raise self.problem
            self._changed.clear()
            self._retry_now.set()
            await self._changed.wait()

    async def until_up(self) -> None:
        """Return once the link is up, over failed attempts, too: until then it reconnects as for a kernel. Raise the
        reason if the link was given up."""
        self._waiting += 1
        self._retry_now.set()
        try:
            while self.state != "up":
                if self.state == "failed":
                    raise self.problem or ConnectError("the link was closed", hop=self.name)
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._waiting -= 1

    async def request(self, do: str, timeout: float = 30.0, **more: Any) -> dict[str, Any]:
        """Return the agent's answer to a request. Raise AgentError if the agent refuses or does not answer."""
        timeout = max(timeout, AGENT_WAITS.get(do, 0.0))
        await self.up()
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._requests[number] = future
        if self._stream is not None:
            self._stream.write(json_frame(Kind.REQUEST, dict(more, do=do), number=number).encode())
        try:
            answer = await asyncio.wait_for(future, timeout)
        except asyncio.TimeoutError:
            cause = f"the agent on the node did not answer “{do}” within {timeout:.0f} s"
            raise AgentError(cause, hop=self.name) from None
        finally:
            self._requests.pop(number, None)
        self.root_id = validate.root_id(answer.pop("root", "")) or self.root_id
        return _checked(do, answer, self.name)

    def attach(self, attachment: Attachment) -> None:
        """Carry this kernel from now on, over every reconnect, until `release`."""
        self._attachments.add(attachment)
        if self.state != "up":
            self._retry_now.set()

    def release(self, attachment: Attachment) -> None:
        """Stop to carry this kernel. The keeper lives on."""
        self._attachments.remove(attachment)

    def pump(self, endpoint: Endpoint) -> None:
        """Write what attachments have to send; call it after `endpoint.send`."""
        self._attachments.pump(endpoint.attachment)

    def retry(self) -> None:
        """Reconnect at once if the link waits for the next attempt; `up` then reports the result of that attempt."""
        if self.state == "away":
            self.problem = None
        self._retry_now.set()

    def keep_trying(self) -> None:
        """Reconnect also if the first attempt fails, as after a hub was killed that had this link up."""
        self._reconnects = True

    async def close(self) -> None:
        """End the link; keepers live on."""
        self._closed = True
        while not self._task.done():  # before Python 3.12 wait_for may swallow one cancellation
            self._task.cancel()
            await asyncio.wait([self._task], timeout=0.1)
        self._disconnect("closed")
        self._set("failed", ConnectError("the link was closed", hop=self.name))

    # -------------------------------------------------------------------- connecting and reconnecting

    async def _run(self) -> None:
        delay = 0.0
        while True:
            try:
                stream = await self._connect()
                up_since = self._loop.time()
                reason = await self._ping_until_dead(stream)
                if self._loop.time() - up_since > self._timeouts.retry_most:
                    delay = 0.0
            except Exception as error:
                if not isinstance(error, GpuKernelError):  # a bug of ours: report it where somebody waits
                    self._log.exception("%s: the link failed", self.name)
                    error = ConnectError(f"{type(error).__name__}: {error}", hop=self.name)
                reason = error.cause
                self._set("away" if self._reconnects else "failed", error)
            self._disconnect(reason)
            if not self._reconnects:
                return
            self._log.warning("%s: link down: %s", self.name, reason)
            self._retry_now.clear()
            delay = self._timeouts.next_delay(delay, isinstance(self.problem, AuthError | HostKeyError))
            # Without a kernel, wait until somebody needs the link.
            pause = delay * self._runtime.random.uniform(0.7, 1.3) if self.in_use else None
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._retry_now.wait(), pause)

    async def _connect(self) -> StreamThreads:
        stream = await self._dial_stream()
        threads = self._stream = self._carry(
            stream, self._loop, self._received, self._attachments.pump, self.name
        )
        try:
            await asyncio.wait_for(asyncio.shield(threads.greeted), self._timeouts.greeting_within)
        except asyncio.TimeoutError:
            raise threads.no_greeting() from None
        self._reconnects = True
        self._set("up", None)
        self._log.info("%s: link up", self.name)
        self._attachments.connected(threads)
        return threads

    async def _dial_stream(self) -> Stream:
        dialled = asyncio.ensure_future(asyncio.to_thread(self._dial_in_thread))
        try:
            return await asyncio.shield(dialled)
        except asyncio.CancelledError:
            dialled.add_done_callback(_close_stream)
            raise

    def _dial_in_thread(self) -> Stream:
        stream = self._dial(self._reconnects)
        if self._closed:  # meanwhile, and perhaps the event loop has ended, too
            stream.close()
        return stream

    async def _ping_until_dead(self, stream: StreamThreads) -> str:
        """Send pings until the stream is gone; return the reason."""
        timeouts = self._timeouts
        for number in itertools.count(1):
            remaining = stream.last_received + timeouts.dead_after - self._loop.time()
            if remaining <= 0:
                return f"nothing received for {timeouts.dead_after:g} s"
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(
                    asyncio.shield(stream.ended), min(timeouts.ping_every, remaining)
                )
            self._unexpected = 0
            self._ping = number, self._loop.time()
            stream.write(Frame(Kind.PING, number=number).encode())
        raise AssertionError("unreachable")

    def _disconnect(self, reason: str) -> None:
        self._ping = 0, 0.0
        self._round_trips.clear()
        if self._stream is not None:
            self._last_received = self._stream.last_received
            self._stream.close()
            self._stream = None
        if self.state == "up":
            self._set("away", None)
        for future in self._requests.values():
            if not future.done():
                cause = f"the link went down: {reason}"
                future.set_exception(LinkDown(cause, hop=self.name, remedy=TRY_AGAIN_SOON))
        self._attachments.disconnected(reason)

    def _set(self, state: _State, problem: GpuKernelError | None) -> None:
        self.state = state
        self.problem = problem
        self._changed.set()

    # -------------------------------------------------------------------------------------- frames

    def _received(self, frame: Frame) -> None:
        if frame.kind is Kind.REPLY and frame.number in self._requests:
            return _set_answer(self._requests[frame.number], frame, self.name)
        if frame.kind is Kind.PONG and frame.number == self._ping[0] > 0:
            self._round_trips.append(self._loop.time() - self._ping[1])
            self._ping = 0, 0.0  # a node that answers twice does not count twice
            return
        if self._attachments.receive(frame):
            return
        self._unexpected += 1
        if self._unexpected > _MAX_UNEXPECTED and self._stream is not None:
            self._stream.end(f"the node sent more than {_MAX_UNEXPECTED} unexpected frames")


def _close_stream(dialled: asyncio.Future[Stream]) -> None:
    if not dialled.cancelled() and dialled.exception() is None:
        threading.Thread(target=dialled.result().close, daemon=True).start()  # it may block on a dead link


def _set_answer(future: asyncio.Future[dict[str, Any]], frame: Frame, hop: str) -> None:
    if future.done():
        return
    try:
        future.set_result(frame.json())
    except FrameError as error:
        future.set_exception(AgentError(f"the agent's answer cannot be read: {error}", hop=hop))


def _checked(do: str, answer: dict[str, Any], hop: str) -> dict[str, Any]:
    """Return the answer to the request `do` as plain data. Raise AgentRefusal if the agent refused the request, or if
    its answer is malformed."""
    if "error" in answer:
        refused = validate.refusal(answer["error"])
        raise AgentRefusal(refused["text"], code=refused["code"], hop=hop)
    try:
        return validate.answer(do, answer)
    except validate.Malformed as error:
        cause = f"the node's answer to “{do}” is malformed: {error}"
        raise AgentRefusal(cause, code="malformed answer", hop=hop) from None
