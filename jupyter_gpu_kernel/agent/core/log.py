"""The log of one kernel: what its front ends get, and what they have requested.

Each change of the state is also an effect of the core, which the log's file gets (`log_file.py`). Messages go to a hub
directly while it reads, else they wait in the file's queue. A hub that attaches again gets marks at the beginning and
the end of its replay, because jupyter_server must get the replay at a limited rate.
"""

from __future__ import annotations

from operator import attrgetter
from typing import AbstractSet, Any, List, Optional, Sequence, Tuple

from ...wire.messages import Channel, Lane, Message, content_of, keeper_message
from ...wire.runtime import EventRuntime
from ..log.cells import without_answer
from ..log.requests import ABORT_COMMANDS
from ..log.state import LogState
from .effects import Effect, Logged, ReadQueue, ToHub, WithdrawFromHub

AHEAD = 2 * 1024 * 1024
"""Bytes that may be on their way to the hub besides its window: enough for any link, and little to hold in memory."""


class Log:
    """`add` changes the `state`; `send` messages to the hub at any time. `hub_…` methods say what the hub does.

    runtime: The time of the present event. effects: Those of this event so far.
    found: Whether a killed keeper has left its log.
    """

    def __init__(self, runtime: EventRuntime, state: LogState, found: bool) -> None:
        self.runtime, self.state, self.found = runtime, state, found
        self.effects: List[Effect] = []
        self._is_attached = self._replay_begins = self._replays = False
        self._window = 0

    def add(self, change: str, *arguments: Any, written: Optional[Tuple[Any, ...]] = None) -> Any:
        """Call a method that changes the state, such as "requests.forward"; return what it returns.

        written: What the file gets in place of the arguments, if that differs.
        """
        self.state.now = self.runtime.time()
        self.effects.append(Logged(change, self.state.now, arguments if written is None else written))
        return attrgetter(change)(self.state)(*arguments)

    def receive(self, counts: Sequence[int], message: Message) -> bool:
        """A message of the hub has come. `counts`: how many have come, per lane.

        Return whether it is new: a hub whose predecessor was killed sends requests that the predecessor may have sent.
        """
        is_new = not self.state.requests.was_received(message)
        new, written = (message, _written(message)) if is_new else (None, None)
        self.add("receive", counts, new, written=(counts, written))
        return is_new

    def has_received(self, message: Message, kernel_is_up: bool) -> bool:
        """Return whether a killed keeper has received this message of the kernel, as far as the log knows.

        If the log of that keeper is lost, front ends do not get the output that the kernel repeats before it is up, but
        they get the replies that the hub lacks. Questions on stdin never count as repeated: the hub decides about them
        (`hub/kernel/core/request_table.py`).
        """
        requests, is_output = self.state.requests, message.channel is Channel.IOPUB
        if message.channel is Channel.STDIN:
            return False
        if self.found:
            return self.state.has_seen(message) or (not is_output and requests.has_reply(message))
        return not kernel_is_up if is_output else not requests.awaits_reply(message.parent_key)

    def leave(self, unread: AbstractSet[str]) -> None:
        """The front end has left, and another one attaches: what the hub has not acknowledged is for nobody. `unread`:
        the keys of the requests about which messages wait."""
        self.add("leave", unread)
        self.effects.append(WithdrawFromHub())

    # -------------------------------------------------------------------------------------- to the hub

    def send(self, lane: Lane, message: Message) -> None:
        """Send a message. In the ORDERED lane it waits behind others; in other lanes, if the hub has left and much is
        on its way to it."""
        waits = not (self._is_attached or self._room > 0)
        if lane is Lane.ORDERED:
            waits = self.state.messages_wait or not (self._is_attached and self._room > 0)
        if waits:
            self.add("wait", message)
        else:
            self._send_now(lane, message)

    def hub_attached(self, hub: str, counts: Sequence[int]) -> None:
        """A hub has attached, which may have missed messages. They follow with the next call of `hub_reads`."""
        self.add("attach", hub, counts)
        self._is_attached = self._replay_begins = self._replays = True

    def hub_detached(self) -> None:
        """No hub is attached any more."""
        self._is_attached = False

    def hub_reads(self, serials: Sequence[int], window: int) -> None:
        """The hub has acknowledged the messages below these numbers: pass on those that wait as fast as it takes them.
        `window`: the bytes that may be on their way to it."""
        self._window = window
        if serials != self.state.serials:
            self.add("acknowledge", list(serials))
        if not self._is_attached:
            return
        if self._replay_begins and self.state.messages_wait:
            self._mark("begin")
        self._replay_begins = False
        self._pass_on()

    def queue_read(self, messages: Sequence[bytes], more: bool) -> None:
        """The oldest messages that waited are sent to the hub; the log's file has this already."""
        self.state.take(messages, more)
        self.effects += [ToHub(Lane.ORDERED, data) for data in messages]
        self._pass_on()

    def _pass_on(self) -> None:
        """Pass on those that wait, as far as there is room."""
        if self.state.messages_wait and self._room > 0:
            self.effects.append(ReadQueue(self._room))
        elif self._replays and not self.state.messages_wait:
            self._replays = False
            self._mark("end")

    @property
    def _room(self) -> int:
        """How many bytes may be sent to the hub besides those that are on their way."""
        return self._window + AHEAD - self.state.unacknowledged_size

    def _send_now(self, lane: Lane, message: Message) -> None:
        """Send a message with the next number of its lane."""
        data = message.encode()
        self.add("send", lane, data, message, written=(int(lane), data))
        self.effects.append(ToHub(lane, data))

    def _mark(self, state: str) -> None:
        self._send_now(Lane.ORDERED, keeper_message(event="replay", state=state))


def _written(message: Message) -> Optional[Message]:
    """Return what the file has of a message of the hub: the answers of users may be passwords."""
    if message.channel is Channel.STDIN:
        return without_answer(message)
    is_needed = message.channel is not Channel.KEEPER or content_of(message).get("do") in ABORT_COMMANDS
    return message if is_needed else None
