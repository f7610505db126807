"""One request of a front end that has no reply yet, and what can be decided about it: see `request_table.py`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from ....wire.messages import Channel, Message, key_of, type_of
from ...front_end.requests import SavedRequest, has_reply

_WAITS = 4
"""The bit of a mark for a request that waits. The lower bits are its `Delivery`."""
_INTERRUPTED = 8
"""The bit of a mark for a cell that was interrupted."""


class Delivery(enum.IntEnum):
    """Which messages of the kernel about one request front ends still get. The numbers are written to files."""

    ALL = 0
    NOTHING = 1
    """The hub has answered the request; the kernel executes it as well."""
    OUTPUT = 2
    """The hub has ended the cell, whose input front ends have, and which the kernel may be running."""


class Decision(enum.Enum):
    """What is done with a message of the kernel."""

    PASS = "pass"
    DROP = "drop"
    ANSWER = "answer"
    """Front ends have answered this question of the kernel: the kernel gets the answer again."""


class Taken(enum.Enum):
    """What is done with a new request of a front end."""

    SEND = "send"
    WAIT = "wait"
    ANSWER = "answer"
    """The request waits, and the hub answers it now: it is code that a front end runs by itself."""


@dataclass
class PendingRequest:
    """A request without a reply of the kernel.

    waits: Whether the request waits at the hub. Else it was given to the keeper's endpoint.
    state: The last execution state that this hub has sent front ends for this request: "", busy or idle.
    has_input: Whether front ends have received the input of this cell.
    has_output: Whether front ends have received output of this cell.
    repeated: Whether a killed hub has sent this request already, or was about to send it.
    interrupted: Whether the user has interrupted the kernel since this cell was sent.
    delivery: What front ends get of the kernel's later messages about the request.
    """

    message: Message
    waits: bool
    state: str = ""
    has_input: bool = False
    has_output: bool = False
    repeated: bool = False
    interrupted: bool = False
    delivery: Delivery = Delivery.ALL

    def __post_init__(self) -> None:
        self.msg_type = type_of(self.message)
        self.key = key_of(self.message)
        self.message = self.message.unparsed()
        self.is_cell = self.message.channel is Channel.SHELL and self.msg_type == "execute_request"
        self.size = sum(map(len, self.message.parts))

    @classmethod
    def recalled(cls, saved: SavedRequest) -> PendingRequest:
        """Return the request of a hub that was killed, perhaps before that hub had sent it."""
        sent, delivery = not saved.mark & _WAITS, Delivery(saved.mark & 3)
        is_interrupted = bool(saved.mark & _INTERRUPTED)
        return cls(
            saved.message,
            not sent,
            has_output=sent,
            repeated=sent,
            interrupted=is_interrupted,
            delivery=delivery,
        )

    @property
    def saved(self) -> SavedRequest:
        """The request as the file keeps it."""
        mark = _WAITS * self.waits | _INTERRUPTED * self.interrupted | self.delivery
        return SavedRequest(mark, self.message)

    @property
    def is_idle(self) -> bool:
        """Whether front ends have received the idle status of this request, so that only the reply is missing."""
        return self.state == "idle"

    @property
    def ends_with_kernel(self) -> bool:
        """Whether no other kernel gets this request, which the kernel has got."""
        is_control = self.message.channel is Channel.CONTROL and self.msg_type != "shutdown_request"
        return self.interrupted or (is_control and has_reply(self.message))

    def observe(self, message: Message, *, is_output: bool) -> bool:
        """Take note of a message on iopub about this request; `is_output`: it is no execution state.

        Return False for a busy status or an input that front ends have: a keeper whose predecessor was killed and has
        left no log does not know what they have, and sends both when it ends a cell in the kernel's place.
        """
        if is_output:
            is_input = b'"execute_input"' in message.parts[0]
            is_news = not (is_input and self.has_input)
            self.has_input, self.has_output = self.has_input or is_input, self.has_output or not is_input
            return is_news
        before, state = self.state, message.content().get("execution_state")
        if state in ("busy", "idle"):
            self.state = str(state)
        return not state == before == "busy"

    def queue_again(self) -> None:
        """Another kernel gets the request: what front ends have of it is of the kernel before."""
        self.waits, self.state, self.has_input = True, "", False

    def describe(self) -> dict[str, Any]:
        """Return {"client", "parts"} for a keeper, which may have to give `parts` to the kernel unchanged."""
        parts = [part.decode("utf-8", "surrogateescape") for part in self.message.parts[:4]]
        return {"client": self.message.client, "parts": parts}
