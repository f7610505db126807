"""One end of an attachment: hello, numbered data, acknowledgements, resume. Bytes of frames in and out,
no I/O.

The hub's end says HELLO first, the keeper's end answers. A HELLO carries this end's numbering
(`session`), the numbering it knows of the other end (`peer`) and how much of that it has (`received`).
Whoever is known resumes; whoever is new gets everything that was never wholly acknowledged.
"""

from __future__ import annotations

import enum
import uuid
from typing import Any, Dict, FrozenSet, Iterable, List, Optional

from . import PROTOCOL
from .fields import FieldError
from .frames import Frame, FrameError, Kind, json_frame
from .hello import Hello, VersionError
from .messages import Lane
from .queues import WINDOW, Inbox, NumberingError, Outbox


class ProtocolError(Exception):
    """The other end broke the rules, or speaks a protocol that we do not."""


class OtherVersion(ProtocolError):
    """The other end speaks another version of the protocol: trying again does not help."""


class State(enum.Enum):
    """CLOSED: no stream. GREETING: a stream, hello not yet exchanged. OPEN: data flows."""

    CLOSED = "closed"
    GREETING = "greeting"
    OPEN = "open"


class Endpoint:
    """`first`: this end says hello first (the hub's). Survives any number of streams, one at a time."""

    def __init__(
        self,
        *,
        first: bool,
        attachment: int = 0,
        window: int = WINDOW,
        delivered: Optional[List[int]] = None,
        features: Iterable[str] = (),
    ) -> None:
        """`delivered`: what this end's predecessor, which died, said of itself last; `features`: what it can do that
        older ends of this protocol cannot."""
        self.first = first
        self.attachment = attachment
        self.state = State.CLOSED
        self.outbox = Outbox(window)
        self.held = 0  # the number of a received chunk from which on nothing is acknowledged; 0: none
        self._inbox = Inbox()
        self._session = uuid.uuid4().hex
        self._peer = ""
        self._hello_due = False
        self._acknowledged = 0
        self._inherited = delivered
        self._our_features = list(features)
        self.features: FrozenSet[str] = frozenset()
        """What the other end says it can do."""

    def __repr__(self) -> str:
        return f"<Connection {self.state.value} received={self._inbox.received} {self.outbox!r}>"

    @property
    def delivered(self) -> List[int]:
        """Per lane, how many of the other end's messages were handed out here, earlier sessions' too."""
        if not self._peer and self._inherited is not None:
            return list(self._inherited)
        return list(self._inbox.delivered)

    @property
    def received(self) -> int:
        """The number of the last chunk that came: while a message is handed out, of its last."""
        return self._inbox.received

    def opened(self, attachment: int = 0) -> None:
        """There is a new stream."""
        self.attachment = attachment
        self.state = State.GREETING
        self._hello_due = self.first

    def closed(self) -> None:
        """The stream is gone; nothing is lost."""
        self.state = State.CLOSED
        self._hello_due = False

    def send(self, lane: Lane, data: bytes) -> None:
        """Queues a message, whatever the state."""
        self.outbox.put(lane, data)

    def withdraw(self) -> List[bytes]:
        """Takes back every message not wholly acknowledged, while there is no stream. What is sent from now on has
        another numbering: should the same peer come again, it must not go on with the old one."""
        self._session = uuid.uuid4().hex
        return self.outbox.withdraw()

    def check(self, frame: Frame) -> Hello:
        """The HELLO in this frame; ProtocolError if it cannot be answered. Nothing is changed."""
        try:
            hello = Hello.read(frame.json())
            if self._resumes(hello):
                self.outbox.check(hello.received)
        except VersionError as error:
            raise OtherVersion(str(error)) from None
        except (FrameError, FieldError, NumberingError) as error:
            raise ProtocolError(str(error)) from None
        if self.first and hello.peer != self._session:
            raise ProtocolError("the answer to our HELLO does not name it")
        return hello

    def receive(self, frame: Frame) -> List[bytes]:
        """The messages that this frame completes. ProtocolError: close the stream."""
        try:
            if frame.kind is Kind.HELLO:
                self._hello(frame)
            elif self.state is not State.OPEN:
                raise ProtocolError(f"{frame.kind.name} before HELLO")
            elif frame.kind is Kind.DATA:
                message = self._inbox.accept(frame.number, frame.flags, frame.payload)
                return [] if message is None else [message]
            elif frame.kind is Kind.ACK:
                self.outbox.acknowledge(frame.number)
            else:
                raise ProtocolError(f"unexpected {frame.kind.name}")
        except NumberingError as error:
            raise ProtocolError(str(error)) from None
        return []

    def outgoing(self, limit: int = WINDOW) -> List[Frame]:
        """The frames to write now, in this order; no new data once `limit` bytes are reached.

        Ask for little at a time: what was handed out can no longer be overtaken.
        """
        frames: List[Frame] = []
        if self._hello_due:
            self._hello_due = False
            frames.append(json_frame(Kind.HELLO, self._our_hello(), self.attachment))
        if self.state is State.OPEN:
            if self._acknowledged < self._taken:
                self._acknowledged = self._taken
                frames.append(Frame(Kind.ACK, self.attachment, self._acknowledged))
            for number, flags, payload in self.outbox.take():
                frames.append(Frame(Kind.DATA, self.attachment, number, flags, payload))
                limit -= len(payload)
                if limit <= 0:
                    break
        return frames

    @property
    def _taken(self) -> int:
        """What the other end need not keep."""
        return min(self._inbox.received, self.held - 1) if self.held else self._inbox.received

    def _our_hello(self) -> Dict[str, Any]:
        delivered = None if self._peer else self._inherited
        features = frozenset(self._our_features)
        hello = Hello(
            PROTOCOL, self._session, self._peer, self._taken, self.outbox.serials, delivered, features
        )
        return hello.to_json()

    def _resumes(self, hello: Hello) -> bool:
        return hello.peer == self._session and bool(hello.session == self._peer or hello.received)

    def _hello(self, frame: Frame) -> None:
        if self.state is not State.GREETING:
            raise ProtocolError("HELLO in a stream that was greeted already")
        hello = self.check(frame)
        self.features = hello.features
        if self._resumes(hello):
            self.outbox.resume(hello.received)
            if self.first:  # a keeper says all that it has; a hub leaves out what it holds
                self.outbox.put_back()
        else:
            self._restart(hello.delivered)
        if hello.session != self._peer:
            self._peer = hello.session
            self._inbox = Inbox(hello.serials)
            self.held = 0
        self._acknowledged = self._taken
        self._hello_due = not self.first
        self.state = State.OPEN

    def _restart(self, delivered: Optional[List[int]]) -> None:
        """The other end has nothing of ours. The hello we said already fixes the first end's numbering."""
        if not self.first:
            self._session = uuid.uuid4().hex
        self.outbox.restart(delivered)
