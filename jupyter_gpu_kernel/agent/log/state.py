"""What the log has: messages that the hub has not acknowledged, the last cells with their output, requests.

The state is a fold. Each of the changes below depends only on its arguments and on the state, so a successor that
repeats a killed keeper's changes has the state that the killed keeper had. The messages that wait for the hub are not
in the state, but in the queue of the log's file.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import AbstractSet, Deque, Dict, List, Optional, Sequence, Set

from ...wire.fields import FieldError
from ...wire.kernel_messages.compose import is_user_cell
from ...wire.messages import Channel, Lane, Message, MessageError, parent_key_of
from .cells import LoggedCells
from .requests import Requests, remember, request_type

_MAX_IDS = 20_000
"""So many messages of the kernel are known by their ids: more than it sends without a report that they were read."""


class LogState:
    """The state, which only `Log` changes: by the methods here, or by those of `requests` and `cells`.

    now: The time of the change, in seconds since 1970.
    messages_wait: Whether messages for the hub wait.
    is_complete: Whether nothing is missing. A successor without a log does not know the requests of the killed keeper
        until the hub has named them, nor what that keeper has read until the kernel is taken over.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.messages_wait = False
        self.is_complete = True
        self.lanes: List[Deque[bytes]] = [deque() for _ in Lane]
        """Per lane, the messages that the hub has not acknowledged."""
        self.unacknowledged_size = 0
        """The size of these messages in bytes."""
        self.serials = [0 for _ in Lane]
        """Per lane, the number of the oldest of these messages, or of the next one."""
        self.cells = LoggedCells()
        self.requests = Requests()
        self.hub = ""
        """The hub's numbering."""
        self.received_counts = [0 for _ in Lane]
        """How many messages of this numbering were received, per lane."""
        self._ids: Dict[str, None] = {}

    def ended_requests(self, unread: AbstractSet[str]) -> Set[str]:
        """Return the keys of the requests with a reply of which the hub has not acknowledged every message. `unread`:
        the keys of the requests about which messages wait."""
        return self._unacknowledged(unread) - {"", *self.requests.pending}

    def _unacknowledged(self, unread: AbstractSet[str]) -> Set[str]:
        return {*unread, *(parent_key_of(Message.decode(data)) for lane in self.lanes for data in lane)}

    def has_seen(self, message: Message) -> bool:
        """Return whether this message of the kernel is one of the newest in the log."""
        return message.msg_id in self._ids

    def set_complete(self, is_complete: bool) -> None:
        """See `is_complete`."""
        self.is_complete = is_complete

    # -------------------------------------------------------------------------------------- messages to the hub

    def send(self, lane: int, data: bytes, message: Optional[Message] = None) -> None:
        """A message gets the next number of its lane, and may be sent to the hub. `data`: its bytes."""
        self.lanes[lane].append(data)
        self.unacknowledged_size += len(data)
        self.keep(message or Message.decode(data))

    def wait(self, message: Message) -> None:
        """A message for the hub waits behind others."""
        self.keep(message)
        self.messages_wait = True

    def keep(self, message: Message) -> None:
        """Take note of a message that front ends get, or would have got if they had not left."""
        if message.channel is Channel.KEEPER:
            return
        with contextlib.suppress(MessageError):
            self.cells.add_message(message, self.now)
            self.requests.observe(message)
            remember(self._ids, message.msg_id, _MAX_IDS)

    def take(self, messages: Sequence[bytes], more: bool) -> None:
        """The oldest messages that waited get the next numbers. `more`: whether others wait behind them."""
        self.lanes[Lane.ORDERED].extend(messages)
        self.unacknowledged_size += sum(map(len, messages))
        self.messages_wait = more

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """The hub has the messages below these numbers, one for each lane."""
        for lane, first, number in zip(self.lanes, self.serials, numbers):
            for _ in range(min(number - first, len(lane))):
                self.unacknowledged_size -= len(lane.popleft())
        self.serials = list(numbers)

    # -------------------------------------------------------------------------------------- messages of the hub

    def attach(self, hub: str, counts: Sequence[int]) -> None:
        """A hub numbers its messages from now on, of which so many have come, per lane."""
        self.hub, self.received_counts = hub, list(counts)

    def receive(self, counts: Sequence[int], message: Optional[Message]) -> None:
        """A message of the hub has come, which may concern the state; so many have come, per lane."""
        self.received_counts = list(counts)
        if message is None:
            return
        with contextlib.suppress(FieldError, MessageError):
            if message.channel is Channel.KEEPER:
                self.requests.aborts.handle(message.content(), self.requests.pending.values())
            elif request_type(message) == "input_reply":
                self.cells.add_input_reply(message)
            else:
                self.requests.add(message)
                if is_user_cell(message):
                    self.cells.add_request(message)

    def leave(self, unread: AbstractSet[str]) -> None:
        """The front end has left, and another one attaches. `unread`: the keys of the requests about which messages
        wait, which now are for nobody."""
        missed = {*self._unacknowledged(unread), *self.requests.pending}
        self.cells.leave(missed=missed & set(self.cells.cells))
        self.requests.leave()
        self.messages_wait = False
        self.serials = [first + len(lane) for first, lane in zip(self.serials, self.lanes)]
        self.lanes, self.unacknowledged_size = [deque() for _ in Lane], 0
