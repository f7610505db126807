"""One end of an attachment: HELLO, numbered data, acknowledgements, resume. Frames in and out, no I/O.

The hub's end says HELLO first, and the keeper's end answers. A HELLO carries this end's numbering (`session`), the
numbering of the other end that it knows (`peer`), and how much of that it has (`received`). Two ends that know each
other resume; otherwise everything that was not acknowledged completely is sent again.
"""

from __future__ import annotations

import enum
from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence

from .. import PROTOCOL
from ..fields import FieldError, number, numbers, text, texts
from ..messages import Data, Lane
from ..runtime import Runtime
from .compression import FEATURE as COMPRESSION
from .frames import CHUNK, Frame, FrameError, Kind, json_frame
from .queues import COMPRESSED, Inbox, NumberingError, Outbox
from .window import MOST, Window

ACKNOWLEDGE_WITHIN = 0.01
"""Seconds in which a little data is acknowledged with the data that goes the other way, or else alone, within as many
again."""
_MAX_NAME = 64
_MAX_FEATURES = 64


class ProtocolError(Exception):
    """The other end broke the rules of the protocol."""


class VersionError(ProtocolError):
    """The other end speaks another version of the protocol: trying again does not help."""


class EndpointState(enum.Enum):
    """CLOSED: there is no stream. GREETING: there is one, but no HELLO was exchanged. OPEN: data flows."""

    CLOSED = "closed"
    GREETING = "greeting"
    OPEN = "open"


class Hello(NamedTuple):
    """What one end says about itself and the other end. `serials` and `delivered` have one number per lane. `owner`:
    the computer of a hub; "" if that is not said."""

    protocol: int
    session: str
    peer: str
    received: int
    serials: Optional[List[int]]
    delivered: Optional[List[int]]
    features: FrozenSet[str]
    owner: str

    @classmethod
    def read(cls, value: Dict[str, Any]) -> Hello:
        """Return the HELLO in a frame's JSON.

        Raises FieldError if a value is malformed, and VersionError if the protocol is another one.
        """
        protocol = number(value, "protocol")
        if protocol != PROTOCOL:
            raise VersionError(f"the other end speaks protocol {protocol}, we speak {PROTOCOL}")
        return cls(
            protocol=protocol,
            session=text(value, "session", most=_MAX_NAME, least=1),
            peer=text(value, "peer", "", most=_MAX_NAME),
            received=number(value, "received", 0),
            serials=numbers(value, "serials", len(Lane)),
            delivered=numbers(value, "delivered", len(Lane)),
            features=frozenset(texts(value, "features", _MAX_FEATURES, default=[], length=_MAX_NAME)),
            owner=text(value, "owner", "", most=_MAX_NAME),
        )

    def to_json(self) -> Dict[str, Any]:
        """Return the JSON object that `read` takes, without the values that are None."""
        value = {key: value for key, value in self._asdict().items() if value is not None}
        return dict(value, features=sorted(self.features))


class Endpoint:
    """One end of an attachment. It survives any number of streams, one at a time."""

    features: FrozenSet[str] = frozenset()
    """What the other end can do, by its HELLO."""
    has_more = False
    """Whether there may be more to write than the last call of `outgoing` has returned."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        first: bool,
        window: Optional[Window] = None,
        peer: str = "",
        delivered: Optional[List[int]] = None,
        features: Iterable[str] = (),
        owner: str = "",
    ) -> None:
        """Create a closed end.

        first: This end says HELLO first, as the hub's does.
        window: How much may be unacknowledged; by default what the path holds.
        peer: The numbering of the other end that this end's killed predecessor knew; a hub need not say it.
        delivered: Per lane, how many messages that predecessor had delivered.
        features: What this end can do and older ends of this protocol cannot.
        owner: The computer of this end, if this is the hub's end.
        """
        self._runtime = runtime
        self.first = first
        self.attachment = 0
        self.state = EndpointState.CLOSED
        self.outbox = Outbox(window or Window(runtime.monotonic))
        self._waiting = [0 for _ in Lane]  # messages that were received and not passed on
        self._held = 0  # the number of the first received chunk that is not acknowledged yet; 0: none
        self._session = self._runtime.new_id()
        self.peer = ""
        """The numbering of the other end."""
        self._hello_due = False
        self._acknowledged = 0
        self._acknowledge_now = False
        self._overdue = 0  # what was to be acknowledged at the last call of `acknowledge_overdue`
        self._unacknowledged = 0  # bytes received since the last acknowledgement
        self._inherited = delivered
        self._inherited_peer = peer
        self._our_features = list(features)
        self._owner = owner
        self._inbox = self._new_inbox()

    def __repr__(self) -> str:
        return f"<Endpoint {self.state.value} received={self._inbox.received} {self.outbox!r}>"

    @property
    def delivered(self) -> List[int]:
        """Per lane, how many of the other end's messages were delivered here and do not wait, in earlier sessions as
        well."""
        if not self.peer and self._inherited is not None:
            return list(self._inherited)
        return [max(0, count - waiting) for count, waiting in zip(self._inbox.delivered, self._waiting)]

    @property
    def received(self) -> int:
        """The number of the last chunk that was received: that of a message's last chunk while it is delivered."""
        return self._inbox.received

    @property
    def lane(self) -> Lane:
        """The lane of the last chunk that was received: that of a message while it is delivered."""
        return self._inbox.lane

    @property
    def assembling(self) -> int:
        """Bytes of received messages that are not complete yet."""
        return self._inbox.assembling

    def opened(self, attachment: int = 0) -> None:
        """A new stream was opened."""
        self.attachment = attachment
        self.state = EndpointState.GREETING
        self._hello_due = self.first

    def closed(self) -> None:
        """The stream was closed. Nothing is lost."""
        self.state = EndpointState.CLOSED
        self._hello_due = False

    def send(self, lane: Lane, data: bytes) -> None:
        """Queue a message, in any state."""
        self.outbox.put(lane, data)

    def hold_acknowledgements(self, first: int, waiting: Sequence[int] = (0,) * len(Lane)) -> None:
        """Do not acknowledge the chunk with this number and later ones, as so many messages wait per lane, which would
        be lost with this process. 0: acknowledge everything."""
        self._held = first
        self._waiting = list(waiting)

    @property
    def owes_acknowledgement(self) -> bool:
        """Whether `acknowledge_overdue` should be called in ACKNOWLEDGE_WITHIN, as no data has to be sent now."""
        return self.state is EndpointState.OPEN and self._acknowledged < self._acknowledgeable

    def acknowledge(self) -> None:
        """Let `outgoing` return an acknowledgement also without data, if one is owed."""
        self._acknowledge_now = self.owes_acknowledgement

    def acknowledge_overdue(self) -> None:
        """Let `outgoing` return an acknowledgement also without data, if chunks that had come before the last call of
        this method are not acknowledged yet. So an acknowledgement waits for data for at least one interval between two
        calls."""
        self._acknowledge_now = self._acknowledged < min(self._overdue, self._acknowledgeable)
        self._overdue = self._acknowledgeable

    def withdraw(self) -> List[bytes]:
        """Remove and return every message that was not acknowledged completely. There must be no stream.

        What is sent from now on has another numbering, so that a peer that comes again does not resume the old one.
        """
        self._session = self._runtime.new_id()
        return self.outbox.withdraw()

    def check(self, frame: Frame) -> Hello:
        """Return the HELLO in this frame; raise ProtocolError if it cannot be answered. Nothing is changed."""
        try:
            hello = Hello.read(frame.json())
            if self._resumes(hello):
                self.outbox.check(hello.received)
        except (FrameError, FieldError, NumberingError) as error:
            raise ProtocolError(str(error)) from None
        if self.first and hello.peer != self._session:
            raise ProtocolError("the answer to our HELLO does not name it")
        return hello

    def receive(self, frame: Frame) -> List[Data]:
        """Return the messages that this frame completes. Raises ProtocolError if the stream must be closed."""
        try:
            if frame.kind is Kind.HELLO:
                self._receive_hello(frame)
            elif self.state is not EndpointState.OPEN:
                raise ProtocolError(f"{frame.kind.name} before HELLO")
            elif frame.kind is Kind.DATA:
                message = self._inbox.accept(frame.number, frame.flags, frame.payload)
                self._unacknowledged += len(frame.payload)
                return [] if message is None else [message]
            elif frame.kind is Kind.ACK:
                self.outbox.acknowledge(frame.number)
            else:
                raise ProtocolError(f"unexpected {frame.kind.name}")
        except NumberingError as error:
            raise ProtocolError(str(error)) from None
        return []

    def outgoing(self, limit: int = MOST) -> List[Frame]:
        """Return the frames to write now, in this order; no new data once `limit` bytes are reached.

        Callers should take little at a time: what was returned can no longer be overtaken. Less than a chunk of
        received data is acknowledged together with data: an acknowledgement alone costs both ends as much as a message.
        """
        frames: List[Frame] = []
        self.has_more = False
        if self._hello_due:
            self._hello_due = False
            frames.append(json_frame(Kind.HELLO, self._our_hello(), self.attachment))
        if self.state is EndpointState.OPEN:
            data: List[Frame] = []
            for number, flags, payload in self.outbox.take():
                data.append(Frame(Kind.DATA, self.attachment, number, flags, payload))
                # Compressing takes time, however little it leaves.
                limit -= max(len(payload), CHUNK // 4) if flags & COMPRESSED else len(payload)
                self.has_more = limit <= 0
                if self.has_more:
                    break
            waits = not data and not self._acknowledge_now and self._unacknowledged < CHUNK
            if self.owes_acknowledgement and not waits:
                frames.append(self._acknowledgement())
            frames += data
        return frames

    def _new_inbox(self, serials: Optional[List[int]] = None, known: Optional[List[int]] = None) -> Inbox:
        return Inbox(serials, known, decompresses=COMPRESSION in self._our_features)

    @property
    def _acknowledgeable(self) -> int:
        """The number of the last chunk that the other end need not keep."""
        return min(self._inbox.received, self._held - 1) if self._held else self._inbox.received

    def _acknowledgement(self) -> Frame:
        self._acknowledged = self._acknowledgeable
        self._acknowledge_now, self._unacknowledged = False, 0
        return Frame(Kind.ACK, self.attachment, self._acknowledged)

    def _our_hello(self) -> Dict[str, Any]:
        is_known = self.first or self.peer == self._inherited_peer
        counts = list(self.outbox.serials), self.delivered if is_known else None
        self._acknowledged = self._acknowledgeable  # by this HELLO
        features = frozenset(self._our_features)
        numbering = self._session, self.peer, self._acknowledged
        return Hello(PROTOCOL, *numbering, *counts, features, self._owner).to_json()

    def _resumes(self, hello: Hello) -> bool:
        return hello.peer == self._session and bool(hello.session == self.peer or hello.received)

    def _receive_hello(self, frame: Frame) -> None:
        if self.state is not EndpointState.GREETING:
            raise ProtocolError("a second HELLO in one stream")
        hello = self.check(frame)
        self.features = hello.features
        self.outbox.compresses = COMPRESSION in hello.features
        if self._resumes(hello):
            self.outbox.resume(hello.received)
            if self.first:
                self.outbox.requeue()  # a keeper's `received` is exact; a hub's leaves out what the hub holds
        else:  # a keeper that knows no hub has numbered nothing that one could have
            self._restart(hello.delivered if self.first or self.peer or self._inherited_peer else None)
        if hello.session != self.peer:
            self._inbox = self._next_inbox(hello)
            self.peer = hello.session
            self._held = self._overdue = self._acknowledged = 0
        self._hello_due = not self.first
        self.state = EndpointState.OPEN

    def _next_inbox(self, hello: Hello) -> Inbox:
        """Return the inbox for the other end's new numbering. The hub's HELLO says where a keeper's numbering begins
        that continues another one; the successor of a keeper goes on where the hub's own numbering was."""
        if self.first:
            known = self._inbox.delivered if hello.delivered is not None else None
            return self._new_inbox(hello.serials, known)
        if hello.session == self._inherited_peer:
            return self._new_inbox(self._inherited)
        self._inherited_peer = ""
        return self._new_inbox(hello.serials)

    def _restart(self, delivered: Optional[List[int]]) -> None:
        """Send everything again: the other end has nothing. The first end has named its numbering in its HELLO."""
        if not self.first:
            self._session = self._runtime.new_id()
        self.outbox.restart(delivered)
