"""The keeper's server: a unix socket in the kernel's 0700 folder, to which `attach` processes connect.

One connection at a time has the attachment, the newest: an older connection may hang on a dead link. Any connection may
send a REQUEST. The server knows frames and the wire's endpoint, and nothing of kernels.

`OutputPace` says how fast a kernel may go on to write while its front end reads: not much faster than the output is
taken. Otherwise a cell that prints without end would be seconds ahead of what its user sees, and so would be the end of
a cell that the user interrupts. A kernel that writes less than `RATE` is never slowed. While no front end is attached,
no kernel is slowed, as the log takes its output.
"""

from __future__ import annotations

import socket
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from ...wire.fields import FieldError
from ...wire.messages import Lane, Message, MessageError
from ...wire.stream.endpoint import ACKNOWLEDGE_WITHIN, Endpoint, EndpointState, ProtocolError
from ...wire.stream.frames import CHUNK, MAX_PAYLOAD, Frame, FrameError, Kind, reply_frame
from ..core.effects import ToHub, WithdrawFromHub
from ..core.events import HubAttached, HubDetached, HubReads, HubSent
from ..story import Limited, Story
from ..system.agent_runtime import listen
from ..system.frame_connection import FrameConnection
from ..system.loop import Loop, Timer
from .core_runner import CoreRunner

MAX_CONNECTIONS = 64
_WAITING_CONNECTIONS = 16
MAX_PENDING = 4 * MAX_PAYLOAD
MALFORMED = (FieldError, FrameError, MessageError, ProtocolError)
"""The exceptions that malformed input raises."""
OnRequest = Callable[[Dict[str, Any]], Dict[str, Any]]
Bind = Callable[[Path, int], socket.socket]
AHEAD = 8 * 1024 * 1024
"""Bytes that may wait for the front end before the kernel is slowed: a fraction of a second on a fast link."""
RATE = 8 * 1024 * 1024
"""Bytes per second that a kernel may always write."""
_AT_ONCE = 512 * 1024
"""Bytes: a kernel that writes so much in an interval learns at once that they were handled."""
_INTERVAL = 0.05


class HubEvents(NamedTuple):
    """What the keeper does beside its core when hubs come, ask and go. `on_rejected(error)`: a connection was closed,
    or a request refused, because of what it sent. `owner()`: the computer whose hub may attach; "": any."""

    on_request: OnRequest
    on_attached: Callable[[], object]
    on_detached: Callable[[], object]
    on_rejected: Callable[[Exception], object]
    owner: Callable[[], str] = str


class RejectedInput:
    """Reports malformed input in the story, limited in rate."""

    def __init__(self, story: Story, clock: Callable[[], float]) -> None:
        self._story = Limited(story, clock)

    def report(self, error: Exception) -> None:
        """Report an error that ends a connection or a request, and not the keeper. If it is a bug, the log
        gets the traceback."""
        if isinstance(error, MALFORMED):
            self._story.tell("refused", f"malformed input was refused: {error}")
        elif self._story.tell("fault", f"a fault of the keeper: {type(error).__name__}: {error}"):
            traceback.print_exception(type(error), error, error.__traceback__)


class KeeperServer:
    """What the core wants the hub to get waits in the `endpoint` until the end of the loop's turn, or until a hub is
    attached."""

    def __init__(
        self, loop: Loop, path: Path, runner: CoreRunner, events: HubEvents, bind: Bind = listen
    ) -> None:
        """`bind` makes the socket that listens at the path. What hubs send becomes events for the core."""
        self.loop = loop
        self.path = path
        self.runner = runner
        state = runner.core.log.state
        self.endpoint = Endpoint(loop.runtime, first=False, peer=state.hub, delivered=state.received_counts)
        for lane in Lane:
            self.endpoint.outbox.restore(lane, state.serials[lane], state.lanes[lane])
        runner.actions.update({ToHub: self.endpoint.send, WithdrawFromHub: self.endpoint.withdraw})
        runner.write_to_hub = self._write_new
        self._hub_reads: Optional[HubReads] = None  # what the core knows of it
        self._heard_hub = False  # whether the hub may have acknowledged more than the core knows of
        self._events = events
        self._hub: Optional[FrameConnection] = None  # the one that has the attachment
        self._connections: Dict[int, FrameConnection] = {}
        self._acknowledges = False  # whether a timer runs for an acknowledgement
        self._listener = bind(path, _WAITING_CONNECTIONS)
        loop.watch(self._listener.fileno(), self._accept)

    @property
    def attached(self) -> bool:
        """Whether a hub has the attachment."""
        return self._hub is not None

    def tell_what_hub_reads(self) -> None:
        """Tell the core if the hub has acknowledged messages, or may get more or less at once."""
        reads = HubReads(list(self.endpoint.outbox.serials), self.endpoint.outbox.window)
        if reads != self._hub_reads:
            self._hub_reads = reads
            self.runner.handle(reads)

    def detach(self) -> None:
        """Close the connection that has the attachment."""
        if self._hub is not None:
            self._remove(self._hub)

    def close(self) -> None:
        """Close all connections, and remove the socket."""
        for connection in list(self._connections.values()):
            connection.flush(MAX_PENDING // CHUNK)
            connection.close()
        self.loop.forget(self._listener.fileno())
        self._listener.close()
        self.path.unlink(missing_ok=True)  # something that cleans /tmp may have removed it

    # -------------------------------------------------------------------------------------- called by connections

    def received(self, connection: FrameConnection, frame: Frame) -> None:
        """A frame was received."""
        if frame.kind is Kind.REQUEST:
            return self._reply(connection, frame)
        if frame.kind is Kind.HELLO:
            if connection is self._hub:
                raise ProtocolError("a second HELLO")
            hello = self.endpoint.check(frame)  # before the present hub is disconnected
            owner = self._events.owner()  # perhaps another one than when `attach` has asked
            if owner and hello.owner and owner != hello.owner:
                raise ProtocolError("another computer has taken the kernel over")
            self._attach(connection)
        if connection is not self._hub:
            raise ProtocolError("data before HELLO")
        for data in self.endpoint.receive(frame):
            self.runner.handle(HubSent(self.endpoint.delivered, Message.decode(data)))
        self._heard_hub = True
        if frame.kind is Kind.HELLO:
            self.tell_what_hub_reads()
            self.runner.handle(HubAttached(self.endpoint.peer, self.endpoint.delivered))
            self._events.on_attached()
            self._hub_reads = None
            self.tell_what_hub_reads()

    def due(self, connection: FrameConnection) -> Tuple[bytes, bool]:
        """The next bytes for this connection, about one chunk, and whether more may be due then."""
        if connection is not self._hub or self.endpoint.state is not EndpointState.OPEN:
            return b"", False
        if self._heard_hub:  # after the requests that have come with it, which the kernel should get at once
            self._heard_hub = False
            self.tell_what_hub_reads()
        frames = self.endpoint.outgoing(CHUNK)
        if frames:
            self.runner.log_file.flush()  # before the hub gets messages and acknowledgements
        if self.endpoint.owes_acknowledgement and not self._acknowledges:
            self._acknowledges = True
            self.loop.later(ACKNOWLEDGE_WITHIN, self._acknowledge)
        return b"".join(frame.encode() for frame in frames), self.endpoint.has_more

    def disconnected(self, connection: FrameConnection) -> None:
        """The connection has ended."""
        was_attached = connection is self._hub
        self._remove(connection)
        if was_attached:
            self._events.on_detached()

    def rejected(self, connection: FrameConnection, error: Exception) -> None:
        """The client sent malformed input: its connection ends."""
        self._events.on_rejected(error)
        self.disconnected(connection)

    # -------------------------------------------------------------------------------------- internal

    def _remove(self, connection: FrameConnection) -> None:
        self._connections.pop(id(connection), None)
        connection.close()
        if connection is self._hub:
            self._hub = None
            if self._heard_hub:
                self.tell_what_hub_reads()
            self.endpoint.closed()
            self.runner.handle(HubDetached())
            self.runner.log_file.flush()  # also what this hub has acknowledged

    def _attach(self, connection: FrameConnection) -> None:
        if self._hub is not None:
            self.disconnected(self._hub)
        self._hub = connection
        self.endpoint.opened()

    def _reply(self, connection: FrameConnection, frame: Frame) -> None:
        try:
            reply = self._events.on_request(frame.json())
        except MALFORMED as error:
            self._events.on_rejected(error)
            reply = {"error": {"code": "malformed", "text": str(error)}}
        self.runner.log_file.flush()  # before the client acts on what was done
        connection.pending += reply_frame(reply, frame.number).encode()
        if len(connection.pending) > MAX_PENDING:
            raise ProtocolError("it sends requests, and does not read the replies")

    def _accept(self, _: int) -> None:
        # The oldest is closed; a REQUEST comes on a connection of its own.
        while len(self._connections) >= MAX_CONNECTIONS:
            self.disconnected(next(one for one in self._connections.values() if one is not self._hub))
        try:
            sock, _address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        connection = FrameConnection(self.loop, sock, self)
        self._connections[id(connection)] = connection

    def _acknowledge(self) -> None:
        self._acknowledges = False
        self.endpoint.acknowledge_overdue()
        self._write()

    def _write_new(self) -> None:
        if self.endpoint.outbox.has_new:
            self._write()

    def _write(self) -> None:
        if self._hub is not None:
            try:
                self._hub.flush()
            except OSError:
                self.disconnected(self._hub)
            except Exception as error:  # a bug of ours, or a damaged file, must not end the keeper
                self.rejected(self._hub, error)


class OutputPace:
    """Tells the kernel how many bytes of its output the keeper has handled: the kernel may write as many more.

    `return_mark(total)` tells the kernel that it need not keep its first `total` bytes any more. It is called when
    these bytes are in the log's file.
    """

    def __init__(
        self, loop: Loop, server: KeeperServer, runner: CoreRunner, return_mark: Callable[[int], object]
    ) -> None:
        self._loop = loop
        self._server = server
        self._runner = runner
        self._return_mark = return_mark
        self._handled = 0
        self._returned = 0
        self._timer: Optional[Timer] = None

    def handled(self, total: int) -> None:
        """The keeper has handled `total` bytes of the kernel's output. If that is little, the kernel is told later: the
        hub gets the output first, and of many short cells not each one costs the kernel a message."""
        if total < self._handled:  # of another process
            self._returned = 0
        self._handled = total
        if total - self._returned > _AT_ONCE and not self._is_ahead:
            self._return(total)
        elif self._timer is None:
            self._timer = self._loop.later(_INTERVAL, self._return_some)

    @property
    def _is_ahead(self) -> bool:
        """Whether the kernel is far ahead of the front end that reads."""
        return self._server.attached and self._runner.log_file.unacknowledged > AHEAD

    def _return_some(self) -> None:
        most = int(RATE * _INTERVAL) if self._is_ahead else self._handled
        self._return(min(self._handled, self._returned + most))
        is_all = self._returned == self._handled
        self._timer = None if is_all else self._loop.later(_INTERVAL, self._return_some)

    def _return(self, total: int) -> None:
        self._returned = total
        self._runner.log_file.flush()
        self._return_mark(total)
