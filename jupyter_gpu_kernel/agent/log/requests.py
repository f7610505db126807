"""The requests of front ends that the keeper has received, as far as they may still matter; and stop on error."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterable, Optional, Set, Tuple, TypeVar

from ...wire.fields import text, texts
from ...wire.messages import MAX_PARTS, Channel, Message, MessageError, content_of, keeper_message, key_of

MAX_REQUESTS = 100_000
"""The number of requests without a reply, and of cells in one command."""
MAX_SIZE = 256 * 1024 * 1024
"""The size of all requests without a reply, in bytes. A single request may be larger if there is no other one."""
_REMEMBERED = 1000
"""So many requests are remembered, the newest ones that were received, and the newest ones that have a reply."""
ABORT_COMMANDS = ("failure_seen", "cancel", "interrupt", "arrived")
"""The commands of the hub, or of a successor to itself, that say which cells must not run."""
_CHANNELS = (Channel.SHELL, Channel.CONTROL, Channel.STDIN)
_MAX_ID = 256
"""Characters of a message's id or type."""
_Id = TypeVar("_Id", str, bytes, Tuple[Channel, str])


def request_type(message: Message) -> str:
    """Return a request's type. Raise FieldError or MessageError if no kernel could take the message as a request."""
    if message.channel not in _CHANNELS or not 4 <= len(message.parts) <= MAX_PARTS:
        raise MessageError(f"a request of {len(message.parts)} parts for {message.channel.name}")
    header = message.header()
    text(header, "msg_id", most=_MAX_ID, least=1)
    message.parent(), message.metadata(), message.content()
    return text(header, "msg_type", most=_MAX_ID)


def stops_others(request: Message) -> bool:
    """Return whether this is a cell that must be the last of those that were sent, if it fails."""
    content = request.content()
    return request.msg_type == "execute_request" and bool(
        content.get("stop_on_error", True) and not content.get("silent")
    )


def is_failure(reply: Message) -> bool:
    """Return whether this is the reply to a cell that has failed."""
    return b'"error"' in reply.parts[3] and content_of(reply).get("status") == "error"


class Aborts:
    """Stop on error: a cell that was sent before its front end knew of an earlier cell's failure does not run.

    The kernel aborts what is in its queue when a cell fails. For cells that are still on their way, the hub reports
    when it has passed the reply of the failed cell on to the front end: what arrives before was sent before.
    """

    def __init__(self) -> None:
        self._interrupted: Dict[str, None] = {}  # msg_ids of cells that must not run if they arrive
        self._failed: Dict[int, str] = {}  # client: msg_id of its last failed cell that it has not seen

    def handle(self, command: Dict[str, Any], arrived: Iterable[ReceivedRequest]) -> None:
        """Execute one of ABORT_COMMANDS; ignore other commands. Raises FieldError if it is malformed.

        arrived: The requests that have come and that have no reply.
        """
        do = text(command, "do")
        if do == "failure_seen":
            self.failure_seen(text(command, "reply"))
        elif do == "arrived":  # all cells that were interrupted, as far as this is known
            self._interrupted.clear()
        elif do in ABORT_COMMANDS:
            known = {one.request.msg_id for one in arrived}
            cells = texts(command, "cells", MAX_REQUESTS, default=[])
            self.cancel(msg_id for msg_id in cells if msg_id not in known)

    def handle_reply(self, reply: Message) -> None:
        """The reply to a cell that stops others on error is sent."""
        if is_failure(reply):
            self._failed[reply.client] = reply.parent_id

    def failure_seen(self, msg_id: str) -> None:
        """The front end has the reply of this cell."""
        self._failed = {client: failed for client, failed in self._failed.items() if failed != msg_id}

    def cancel(self, msg_ids: Iterable[str]) -> None:
        """The user has interrupted these cells: those that arrive from now on must not run."""
        for msg_id in msg_ids:
            remember(self._interrupted, msg_id, MAX_REQUESTS)

    def should_abort(self, request: Message) -> bool:
        """Return whether this execute_request was sent without knowing that an earlier cell had failed, or before an
        interrupt that overtook the request."""
        return request.client in self._failed or request.msg_id in self._interrupted

    def unseen_failures(self) -> Optional[Message]:
        """Return the event for a hub that attaches: when it has passed on all that it lacks, the front end has seen
        these replies. None if there is nothing to report."""
        return keeper_message(event="mark", replies=list(self._failed.values())) if self._failed else None

    def clear(self) -> None:
        """Forget the failures: the front end is another one, or its hub does not report what it has seen."""
        self._failed.clear()


class ReceivedRequest:
    """A request that has no reply.

    is_cell: Whether it is an execute_request.
    stops_others: Whether those behind the cell must not run if it fails.
    forwarded: Whether it was sent to the kernel, or was about to be sent.
    is_interrupted: Whether the cell is to be interrupted as soon as the kernel begins it.
    is_answered: Whether front ends have a reply, although the kernel has not run the cell yet.
    state: The last status of the request that front ends were sent: "", busy or idle.
    count: The execution count in the cell's input, if front ends were sent its input.
    """

    def __init__(self, request: Message) -> None:
        self.request = request.unparsed()
        self.key = request.key
        self.is_cell = request.msg_type == "execute_request"
        self.stops_others = stops_others(request)
        self.forwarded = self.is_interrupted = self.is_answered = False
        self.state = ""
        self.count: Optional[int] = None


class Requests:
    """`add` each request of a front end, and `observe` each message to front ends. `pending` has those without a reply,
    by their keys, oldest first."""

    def __init__(self) -> None:
        self.pending: Dict[str, ReceivedRequest] = {}
        self.orphaned: Set[str] = set()
        """The keys of requests of a front end that has left."""
        self.aborts = Aborts()
        self.count = 0
        """The execution count of the last cell."""
        self._size = 0
        self._received: Dict[bytes, None] = {}
        """The digests of the headers of the newest requests: a header may have 64 KiB."""
        self._idle: Dict[str, None] = {}
        """The keys of the newest requests that are no cells, and whose idle status came before their replies."""
        self._replied: Dict[Tuple[Channel, str], None] = {}
        """The channels and keys of the newest requests that have a reply."""

    def add(self, request: Message) -> None:
        """Add a request that was received."""
        received = ReceivedRequest(request)
        remember(self._received, _digest(request), _REMEMBERED)
        self._remove(received.key)
        self.pending[received.key] = received
        self._size += request.size

    def add_answered(self, request: Message) -> None:
        """Add a cell again that the kernel still has to run, although it was replied to."""
        self.add(request)
        pending = self.pending[request.key]
        pending.is_answered, pending.stops_others = True, False

    @property
    def has_room(self) -> bool:
        """Whether the requests without a reply are not too many."""
        return len(self.pending) < 2 or (len(self.pending) <= MAX_REQUESTS and self._size <= MAX_SIZE)

    def forward(self, key: str) -> None:
        """The request is about to be sent to the kernel."""
        if key in self.pending:
            self.pending[key].forwarded = True

    def interrupt(self, key: str) -> None:
        """The cell was interrupted, which the kernel has not begun."""
        if key in self.pending:
            self.pending[key].is_interrupted = True

    def observe(self, message: Message) -> None:
        """Take note of a message to front ends."""
        pending = self.pending.get(message.parent_key)
        if message.channel in (Channel.SHELL, Channel.CONTROL):
            self._replied_to(message, pending)
        elif message.channel is Channel.IOPUB and pending is not None:
            self._observe_output(message, pending)

    def was_received(self, request: Message) -> bool:
        """Return whether this is one of the newest requests that were received. Clients of one KernelManager use the
        same msg_ids, so the whole header decides, which has the time."""
        pending = self.pending.get(key_of(request))
        known = pending is not None and pending.request.parts[:1] == request.parts[:1]
        return known or _digest(request) in self._received

    def has_reply(self, reply: Message) -> bool:
        """Return whether the request that this reply is for has had one before."""
        return (reply.channel, reply.parent_key) in self._replied and reply.parent_key not in self.pending

    def awaits_reply(self, key: str) -> bool:
        """Return whether a reply to a request with this key may come that front ends do not have."""
        return key in self.pending or key in self._idle

    def kernel_started(self) -> None:
        """Another process of the kernel gets the requests. Those of the process before have ended, some without a
        reply."""
        self.count = 0
        for key in [key for key, one in self.pending.items() if one.forwarded or not one.is_cell]:
            self._remove(key)

    def leave(self) -> None:
        """The front end that has sent the requests has left the kernel."""
        self.orphaned = set(self.pending)
        self.aborts.clear()
        for pending in self.pending.values():
            pending.stops_others = False

    def _replied_to(self, reply: Message, pending: Optional[ReceivedRequest]) -> None:
        count = reply.content().get("execution_count") if reply.msg_type == "execute_reply" else None
        if isinstance(count, int):
            self.count = max(self.count, count)
        # Another client may use the same msg_id.
        if pending is not None and pending.request.client == reply.client:
            if pending.stops_others:
                self.aborts.handle_reply(reply)
            self._remove(pending.key)
        self._idle.pop(reply.parent_key, None)
        remember(self._replied, (reply.channel, reply.parent_key), _REMEMBERED)

    def _observe_output(self, message: Message, pending: ReceivedRequest) -> None:
        if message.msg_type == "execute_input":
            count = message.content().get("execution_count")
            pending.count = count if isinstance(count, int) else None
        elif message.msg_type == "status":
            pending.state = str(message.content().get("execution_state"))
            if pending.state == "idle" and not pending.is_cell:
                self._remove(pending.key)  # it may have no reply
                remember(self._idle, pending.key, _REMEMBERED)

    def _remove(self, key: str) -> None:
        request = self.pending.pop(key, None)
        self._size -= 0 if request is None else request.request.size


def _digest(request: Message) -> bytes:
    """Return what tells the header of a request from all others. A malformed message may have no header."""
    return hashlib.sha256(b"".join(request.parts[:1])).digest()


def remember(known: Dict[_Id, None], new: _Id, most: int) -> None:
    """Add an id; of more than `most`, forget the oldest one."""
    known[new] = None
    if len(known) > most:
        del known[next(iter(known))]
