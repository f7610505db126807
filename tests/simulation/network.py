"""The network: an SSH session between hub and node, which can be cut, stalled or slow; and unix sockets on the node."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.errors import AgentError
from jupyter_gpu_kernel.hub.node import stream_threads
from jupyter_gpu_kernel.wire.stream.frames import CHUNK, Frame, FrameError, FrameReader

from .world import World

if TYPE_CHECKING:
    from .keeper import KeeperProcess

READABLE, WRITABLE = 1, 2
"""zmq.POLLIN and zmq.POLLOUT, by which a keeper's loop names events."""
SOCKET_BUFFER = 200_000
"""Bytes that a unix socket takes before the other end reads."""
PIPE_BUFFER = 256_000
"""Bytes under way in one direction of a session before its writer has to wait."""
WRITE_AHEAD = 4 * CHUNK
"""Bytes that may wait in one end of a stream: its own bound, what it writes at once, and a reply."""
_LOCAL = 0.00005
"""Seconds from one process of a machine to another one."""


class Path:
    """The way between two machines. `up`: whether it can be dialled."""

    def __init__(self, world: World, delay: float, rate: float, name: str = "path") -> None:
        """`delay`: seconds one way; `rate`: bytes per second; `name`: of its random numbers."""
        self.world, self.delay, self.rate = world, delay, rate
        self.up = True
        self.slow = 0.0
        self.sessions: list[Session] = []
        self.random = world.random(name)

    def seconds(self) -> float:
        """Return how long one write is under way."""
        return (self.delay + self.slow) * self.random.uniform(1.0, 1.5)

    def session(self) -> Session:
        """Open another session."""
        session = Session(self)
        self.sessions = [one for one in self.sessions if not one.over] + [session]
        return session

    def heal(self) -> None:
        """Nothing is wrong any more: what was lost is lost."""
        self.up, self.slow = True, 0.0
        for session in self.sessions:
            session.resume()


class Direction:
    """Bytes in one direction, in order. They may be held back, or be lost from some moment on."""

    def __init__(self, path: Path) -> None:
        self._path, self._world = path, path.world
        self.deliver: Callable[[bytes], None] = lambda data: None
        self.on_room: Callable[[], None] = lambda: None
        self.under_way = 0
        self.lost = False
        self._queue: deque[bytes] = deque()
        self._held = False
        self._kept = 0  # how many of those in the queue were due while it was held
        self._last = 0.0

    @property
    def has_room(self) -> bool:
        """Whether the writer need not wait."""
        return self.under_way < PIPE_BUFFER

    def write(self, data: bytes) -> None:
        """Send the data."""
        self.under_way += len(data)
        if not self.lost:
            self._queue.append(data)
            self._schedule(len(data))

    def _schedule(self, size: int) -> None:
        at = max(self._last, self._world.now + self._path.seconds()) + size / self._path.rate
        self._last = at
        self._world.later(at - self._world.now, self._arrive)

    def _arrive(self) -> None:
        if self.lost:
            return
        if self._held:
            self._kept += 1
            return
        data = self._queue.popleft()
        self.under_way -= len(data)
        self.deliver(data)
        self.on_room()

    def hold(self) -> None:
        """From now on nothing arrives, until `release`."""
        self._held = True

    def release(self) -> None:
        """What was held arrives."""
        kept, self._kept, self._held = self._kept, 0, False
        for _ in range(kept):
            self._schedule(0)


class Session:
    """One SSH session. `hub` and `node` are its ends: `deliver(data)`, and `ended(reason)` when it is over."""

    def __init__(self, path: Path) -> None:
        self.path, self.world = path, path.world
        self.up, self.down = Direction(path), Direction(path)
        self.on_hub_end: Callable[[str], None] = lambda reason: None
        self.on_node_end: Callable[[], None] = lambda: None
        self.over = False

    def cut(self, *, silent: bool = False, up: bool = True, down: bool = True) -> None:
        """The connection is gone. Silently: nothing arrives any more (in these directions), and nobody is told."""
        if not silent:
            return self._end("the connection was reset")
        self.up.lost, self.down.lost = self.up.lost or up, self.down.lost or down

    def stall(self, *, up: bool = True, down: bool = True) -> None:
        """What is sent in these directions waits, until `resume`."""
        if up:
            self.up.hold()
        if down:
            self.down.hold()

    def resume(self) -> None:
        """What has waited arrives."""
        self.up.release()
        self.down.release()

    def close_by_hub(self) -> None:
        """The hub closes the session, or was killed. The node hears of it unless the way is cut."""
        received = not self.up.lost
        self.up.deliver = self.down.deliver = lambda data: None
        self.on_hub_end = lambda reason: None
        if received:
            self.world.later(self.path.seconds(), self._node_ends)

    def close_by_node(self) -> None:
        """`attach` has ended."""
        self.over = True
        if not self.down.lost:
            self.world.later(self.path.seconds(), self._hub_ends, "the connection was closed")

    def _end(self, reason: str) -> None:
        self.up.lost = self.down.lost = True
        self.world.later(self.path.seconds(), self._hub_ends, reason)
        self.world.later(self.path.seconds(), self._node_ends)

    def _hub_ends(self, reason: str) -> None:
        self.on_hub_end(reason)

    def _node_ends(self) -> None:
        if not self.over:
            self.over = True
            self.on_node_end()


class Carrier:
    """The hub's end of a session, in place of `StreamThreads`: no thread reads or writes."""

    def __init__(
        self,
        session: Session,
        loop: Any,
        on_frame: Callable[[Frame], None],
        on_written: Callable[[], None],
        name: str,
    ) -> None:
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.last_received = loop.time()
        self._queued = 0
        self._session, self._loop, self._name = session, loop, name
        self._on_frame, self._on_written = on_frame, on_written
        self._reader = FrameReader()
        self._waiting: deque[bytes] = deque()
        session.down.deliver = lambda data: loop.call_soon(self._received, data) and None
        session.up.on_room = lambda: self._waiting and loop.call_soon(self._write_more)
        session.on_hub_end = lambda reason: loop.call_soon(self.end, reason) and None

    def has_room(self) -> bool:
        """Return whether the hub may write more."""
        return self._queued < stream_threads.WRITE_AHEAD

    def write(self, data: bytes) -> None:
        """Write, or wait until there is room."""
        self._queued += len(data)
        if self._queued > WRITE_AHEAD:
            self._session.world.fail("bound", f"{self._queued} bytes wait for the stream to {self._name}")
        self._waiting.append(data)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._write_more)

    def _write_more(self) -> None:
        written = False
        while self._waiting and self._session.up.has_room and not self.ended.done():
            data = self._waiting.popleft()
            self._session.up.write(data)
            self._queued -= len(data)
            written = True
        if written:
            self._on_written()

    def close(self) -> None:
        """End the session."""
        self._session.close_by_hub()
        self.end("closed")

    def no_greeting(self) -> AgentError:
        """Return the error for a missing greeting."""
        return AgentError("the agent on the node did not send its greeting", hop=self._name)

    def _received(self, data: bytes) -> None:
        if self.ended.done():
            return
        self.last_received = self._loop.time()
        try:
            for frame in self._reader.feed(data):
                if not self.ended.done():
                    self._on_frame(frame)
        except FrameError as error:
            self.end(str(error))
        if self._reader.greeted and not self.greeted.done():
            self.greeted.set_result(None)
        self._on_written()

    def end(self, reason: str) -> None:
        """Mark the stream as ended."""
        if not self.ended.done():
            self.ended.set_result(reason)
        if not self.greeted.done():
            self.greeted.set_exception(self.no_greeting())
            self.greeted.exception()


class UnixSocket:
    """The keeper's end of a connection to it. `attach`, at the other end, reads by `on_output`."""

    def __init__(self, world: World, keeper: KeeperProcess, loop: Any) -> None:
        self._world, self._keeper, self._loop = world, keeper, loop
        self._number = world.register(self)
        keeper.sockets.append(self)
        self._input, self.output = bytearray(), bytearray()
        self._hung_up = self.closed = False
        self._scheduled = False
        self.on_output: Callable[[], None] = lambda: None
        self.on_close: Callable[[], None] = lambda: None

    # ---------------------------------------------------------------------------------- the keeper's end

    def fileno(self) -> int:
        return -1 if self.closed else self._number

    def setblocking(self, _: bool) -> None:
        pass

    def recv(self, size: int) -> bytes:
        if not self._input and not self._hung_up:
            raise BlockingIOError
        data = bytes(self._input[:size])
        del self._input[:size]
        return data

    def send(self, data: bytes | bytearray) -> int:
        if self._hung_up:
            raise BrokenPipeError
        size = min(len(data), SOCKET_BUFFER - len(self.output))
        if size <= 0:
            raise BlockingIOError
        if not self.output:
            self._world.later(_LOCAL, self._deliver_output)
        self.output += data[:size]
        self._keeper.step()
        return size

    def close(self) -> None:
        """The keeper closes it; what it has written can still be read."""
        if not self.closed:
            self.closed = True
            self._world.later(_LOCAL, self._deliver_close)

    def check(self) -> None:
        """The keeper's loop waits for something: it may be ready."""
        if not self._scheduled and not self.closed and self._events() & self._loop.wants(self._number):
            self._scheduled = True
            self._world.later(_LOCAL, self._poll, process=self._keeper)

    def _events(self) -> int:
        readable = READABLE if self._input or self._hung_up else 0
        return readable | (WRITABLE if len(self.output) < SOCKET_BUFFER or self._hung_up else 0)

    def _poll(self) -> None:
        self._scheduled = False
        if not self.closed:
            self._loop.ready(self._number, self._events())
            self.check()

    # ---------------------------------------------------------------------------------- the other end

    def feed(self, data: bytes) -> None:
        """Write to the keeper."""
        if not self.closed:
            self._input += data
            self.check()

    def read(self, size: int) -> bytes:
        """Read what the keeper has written."""
        data = bytes(self.output[:size])
        del self.output[:size]
        self.check()
        return data

    def hang_up(self) -> None:
        """Close the other end."""
        self._hung_up = True
        self.on_output = self.on_close = lambda: None
        self.check()

    def _deliver_output(self) -> None:
        self.on_output()

    def _deliver_close(self) -> None:
        self.on_output()
        self.on_close()


class Listener:
    """The socket at which a keeper listens."""

    def __init__(self, world: World, keeper: KeeperProcess, loop: Any) -> None:
        self._world, self._keeper, self._loop = world, keeper, loop
        self._number = world.register(self)
        keeper.sockets.append(self)
        self._waiting: deque[UnixSocket] = deque()
        self.closed = False

    def fileno(self) -> int:
        return self._number

    def connect(self) -> UnixSocket:
        """Return a connection, which the keeper is about to accept."""
        sock = UnixSocket(self._world, self._keeper, self._loop)
        self._waiting.append(sock)
        self.check()
        return sock

    def check(self) -> None:
        """The keeper's loop waits for connections."""
        if self._waiting:
            self._world.later(_LOCAL, self._poll, process=self._keeper)

    def _poll(self) -> None:
        if self._waiting and not self.closed:
            self._loop.ready(self._number, READABLE)

    def accept(self) -> tuple[UnixSocket, str]:
        if not self._waiting:
            raise BlockingIOError
        sock = self._waiting.popleft()
        if self._waiting:
            self.check()
        return sock, ""

    def close(self) -> None:
        """Nobody can connect any more."""
        self.closed = True
        for sock in self._waiting:
            sock.close()
