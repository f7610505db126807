"""The requests of front ends that have no reply yet: those that wait at the hub, and the cells that were sent.

This module knows neither link nor sockets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from ....wire.compose import is_user_cell
from ....wire.messages import Channel, Lane, Message, MessageError, id_of, parent_id_of, type_of
from ...front_end.requests import EXECUTED, has_reply, is_own_code, lane_of_request
from .offline_notice import OfflineNotice
from .placeholder import Placeholder

_MAX_INTERRUPTS = 1000
"""Interrupts whose reply is expected. A front end sends one at a time."""
_MAX_CELLS = 1000
"""Cells in flight that an interrupt names."""
_INTERRUPTED = (
    "the node is out of reach; the cell is interrupted when it is back, and shows its output until then"
)
_UNKNOWN_STATE = "?"


class DeferredRequests:
    """The requests that wait at the hub, for the link or for a kernel that is still to be started or found.

    `defer_if_needed` is asked for every request; `resume` and `link_up` return the requests that can be sent now, in
    order. As none has been sent, an interrupt cancels the cells among them at once. An interrupt_request that was lost
    with the link is answered by the hub, as VS Code does nothing for ten seconds otherwise. So is code that a front end
    runs by itself while the kernel waits for its first connection, as VS Code lets its user do nothing before the
    reply.
    """

    def __init__(self, placeholder: Placeholder, notice: OfflineNotice, *, was_up: bool = False) -> None:
        """`was_up`: whether the kernel was connected to a hub that was killed."""
        self._placeholder = placeholder
        self._notice = notice
        self._messages: list[Message] = []
        self._held = self._link_down = False
        self._was_up = was_up
        self._interrupts: dict[str, tuple[Message, list[str]]] = {}  # sent, without a reply; see `sent`
        self._answered: dict[str, None] = {}  # msg_ids of those of which the kernel's messages are dropped
        self._ended: dict[str, None] = {}  # msg_ids of cells of which only output is not dropped

    @property
    def messages(self) -> list[Message]:
        """The requests that wait."""
        return self._messages

    @property
    def active(self) -> bool:
        """Whether requests have to wait at the moment."""
        return self._held or self._link_down

    @property
    def held(self) -> bool:
        """Whether all requests have to wait because the kernel that will get them is not known yet."""
        return self._held

    def hold(self) -> None:
        """From now on all requests wait until `resume`."""
        self._held = True

    def resume(self) -> list[Message]:
        """Return the requests that were held, unless the link is down."""
        self._held = False
        return self._pop_sendable()

    def link_down(self, sent: Iterable[Message] = ()) -> list[str]:
        """From now on requests wait until `link_up`. Answer the interrupts that were sent, and code that a front end
        runs by itself: `sent`, to a kernel that was never connected.

        Returns the ids of the cells that were in flight then: an interrupt may overtake them when the link is up again.
        """
        self._link_down = True
        for request in () if self._was_up else sent:
            self._answer_own_code(request)
        interrupts, self._interrupts = self._interrupts, {}
        for msg_id, (request, _) in interrupts.items():
            _put(self._answered, msg_id)
            self._placeholder.acknowledge(request)
        if interrupts:
            self._notice.interrupted([])
        return list(dict.fromkeys(cell for _, cells in interrupts.values() for cell in cells))[-_MAX_CELLS:]

    def link_up(self) -> list[Message]:
        """Return the requests that waited for the link, unless they are held."""
        self._link_down, self._was_up = False, True
        return self._pop_sendable()

    def defer_if_needed(self, request: Message) -> bool:
        """Let this request wait if it cannot be sent now. Return whether the request waits."""
        if not self._held and (not self._link_down or lane_of_request(request) is Lane.URGENT):
            return False
        self._messages.append(request.unparsed())
        if self._link_down and is_user_cell(request):
            self._notice.cell_deferred(request)
        elif self._link_down and not self._was_up:
            self._answer_own_code(request)
        return True

    def clear(self) -> list[Message]:
        """Drop all messages that wait. Return those that front ends expect a reply to."""
        messages, self._messages = self._messages, []
        return [message for message in messages if has_reply(message)]

    def end_cells(self, cells: list[Message]) -> None:
        """End cells that were sent: they are interrupted when the link is up. Output until then is theirs."""
        for cell in cells:
            _put(self._ended, id_of(cell))
        self._notice.interrupted(cells)
        self._placeholder.end_cells(cells, "KeyboardInterrupt", _INTERRUPTED)

    def cancel_cells(self) -> None:
        """The user interrupts the kernel: cancel the users' cells that wait."""
        cells = [message for message in self._messages if is_user_cell(message)]
        self._messages = [message for message in self._messages if message not in cells]
        self._notice.interrupted(cells)
        self._placeholder.cancel(cells)

    def sent(self, request: Message, in_flight: InFlightCells) -> None:
        """Take note of a request to the keeper; of an interrupt_request, with the cells in flight."""
        if type_of(request) == "interrupt_request" and len(self._interrupts) < _MAX_INTERRUPTS:
            self._interrupts[id_of(request)] = (request, in_flight.ids)

    def was_answered(self, request: Message) -> bool:
        """Return whether this request, which was sent, was answered here."""
        return id_of(request) in self._answered

    def answered_here(self, message: Message) -> bool:
        """Return whether this message of the kernel belongs to a request that the hub has answered."""
        if not self._interrupts and not self._answered and not self._ended:
            return False
        parent = parent_id_of(message)
        if message.channel is Channel.CONTROL:
            self._interrupts.pop(parent, None)
        is_output = message.channel is not Channel.SHELL and type_of(message) != "status"
        return parent in self._answered or (parent in self._ended and not is_output)

    def _answer_own_code(self, request: Message) -> None:
        if is_own_code(request) and id_of(request) not in self._answered:
            _put(self._answered, id_of(request))
            self._placeholder.reply(request, EXECUTED)

    def _pop_sendable(self) -> list[Message]:
        if self._held:
            return []
        messages = self._messages
        self._messages = [
            one for one in messages if self._link_down and lane_of_request(one) is not Lane.URGENT
        ]
        return [one for one in messages if one not in self._messages]


def _put(known: dict[str, None], msg_id: str) -> None:
    known[msg_id] = None
    if len(known) > _MAX_INTERRUPTS:
        del known[next(iter(known))]


class InFlightCells:
    """The cells without a reply that were sent to the keeper, by this hub or by one that was killed. The successor of a
    killed keeper asks for them.

    `sent` gets every request to the keeper, and `received` every message of the keeper.
    """

    def __init__(self) -> None:
        self._cells: dict[str, Message] = {}
        self._silent: set[str] = set()  # msg_ids of those without output
        self._states: dict[str, str] = {}  # by msg_id: the last execution state that front ends have received

    def describe(self) -> list[dict[str, Any]]:
        """Return the cells, oldest first, as a keeper needs them: [{"client", "parts", "state"}].

        `parts` may have to go to the kernel unchanged. `state` is the last state that front ends have received: "",
        busy or idle; "?" if that is not known.
        """
        return [
            {
                "client": cell.client,
                "parts": [_text(part) for part in cell.parts[:4]],
                "state": self._states.get(msg_id, ""),
            }
            for msg_id, cell in self._cells.items()
        ]

    @property
    def size(self) -> int:
        """The bytes of all cells in flight."""
        return sum(len(part) for cell in self._cells.values() for part in cell.parts)

    @property
    def ids(self) -> list[str]:
        """The msg_ids of the cells in flight, oldest first; of very many cells only the newest."""
        return list(self._cells)[-_MAX_CELLS:]

    @property
    def oldest(self) -> tuple[Message | None, bool]:
        """The oldest cell in flight, if a user has run it, and whether that cell is known to run."""
        msg_id, cell = next(iter(self._cells.items()), ("", None))
        is_users = cell is not None and is_user_cell(cell)
        return (cell, self._states.get(msg_id) == "busy") if is_users else (None, False)

    @property
    def busy_ids(self) -> set[str]:
        """The msg_ids of the cells that are busy as far as front ends know."""
        return {msg_id for msg_id, state in self._states.items() if state == "busy"}

    @property
    def all(self) -> list[Message]:
        """The cells in flight, oldest first."""
        return list(self._cells.values())

    @property
    def user_cells(self) -> list[Message]:
        """The cells in flight that users have run."""
        return [cell for cell in self._cells.values() if is_user_cell(cell)]

    def has_output(self, cell: Message) -> bool:
        """Return whether this cell is in flight and has shown something."""
        return id_of(cell) in self._cells and id_of(cell) not in self._silent

    def forget(self, cell: Message) -> None:
        """The hub has answered this cell."""
        for known in (self._cells, self._states):
            known.pop(id_of(cell), None)
        self._silent.discard(id_of(cell))

    def sent(self, request: Message) -> None:
        """Take note of a request to the keeper."""
        if request.channel is not Channel.SHELL or b'"execute_request"' not in request.parts[0]:
            return
        with contextlib.suppress(MessageError):  # the keeper will not answer it either
            msg_id = request.msg_id
            self._cells[msg_id] = request.unparsed()
            self._silent.add(msg_id)

    def recall(self, cells: list[Message]) -> None:
        """Take over the cells that a killed hub had sent, or was about to send."""
        self._cells = {id_of(cell): cell for cell in cells}
        self._states = dict.fromkeys(self._cells, _UNKNOWN_STATE)

    def received(self, message: Message) -> None:
        """Take note of a message of the keeper or the kernel."""
        if message.channel is Channel.SHELL and b'"execute_reply"' in message.parts[0]:
            msg_id = message.parent_id
            self._cells.pop(msg_id, None)
            self._states.pop(msg_id, None)
            self._silent.discard(msg_id)
        elif self._cells and message.channel is Channel.IOPUB and b'"status"' in message.parts[0]:
            msg_id = message.parent_id
            state = message.content().get("execution_state")
            if msg_id in self._cells and state in ("busy", "idle"):
                self._states[msg_id] = state
        elif self._silent and message.channel is Channel.IOPUB and b'"execute_input"' not in message.parts[0]:
            self._silent.discard(message.parent_id)

    def with_queued(self, queued: list[Message]) -> list[Message]:
        """Return the requests to send to another kernel: each cell without a reply, and what else is `queued`, in
        order. Commands to the keeper are left out."""
        queued = [message for message in queued if message.channel is not Channel.KEEPER]
        ids = {id_of(message) for message in queued}
        return [cell for msg_id, cell in self._cells.items() if msg_id not in ids] + queued

    def clear(self) -> list[Message]:
        """Forget the cells in flight, and return them."""
        cells, self._cells, self._states = list(self._cells.values()), {}, {}
        self._silent.clear()
        return cells


def _text(part: bytes) -> str:
    return part.decode("utf-8", "surrogateescape")
