"""The requests that wait: one line, in the order of their arrival, each with its reason.

A request waits until the kernel's process takes requests. Then a cell waits until the cells of a front end that has
left have ended, and a user's cell also until the code is pinned and until the kernel has its GPUs. At last the kernel
has the cell, which waits for its reply. Requests other than cells go to the kernel as soon as it is up, and wait no
longer. An interrupt for a cell that the kernel has not begun is a mark of that cell: between cells, ipykernel ignores
interrupts. This module decides; `relay.py` sends, answers and pins.
"""

from __future__ import annotations

import enum
from itertools import chain, takewhile
from typing import AbstractSet, Dict, Iterator, List, Optional

from ...wire.kernel_messages.compose import is_user_cell
from ...wire.messages import Message
from ..log.requests import ReceivedRequest, is_failure, stops_others
from .code_request import is_only_request, requested_revision


class RelayState(enum.Enum):
    """Whether the kernel takes requests. DOWN: requests wait for the kernel. ENDED: each is answered with an error."""

    DOWN = "down"
    UP = "up"
    ENDED = "ended"


class Reason(enum.Enum):
    """What a request waits for. The value is the error text of a cell that is interrupted while it waits for that;
    cells that wait for REPLY or FORMER_CELLS are interrupted in the kernel, or go on."""

    REPLY = "interrupted by the kernel"
    GPUS = "gave up waiting for a GPU"
    CODE = "interrupted before its code was pinned"
    FORMER_CELLS = "interrupted before the cells of the previous front end had ended"
    KERNEL = "interrupted before the kernel was up"


_ORDER = {reason: place for place, reason in enumerate(Reason)}
"""In the opposite of this order a user's cell waits for these: those that wait for the last are at the line's end."""
_RESOURCES = (Reason.CODE, Reason.GPUS)
"""What only users' cells wait for."""


class WaitingRequest:
    """A request that waits.

    place: The number of the request in the order of arrival.
    by_user: Whether the request is a cell that a user has run.
    names_code: Whether the cell begins with `%gpu code REV`. only_names_code: Whether it has nothing else.
    has_begun: Whether the kernel runs the cell, or has run it. is_interrupted: Whether it is to be interrupted then.
    reply: The kernel's reply, which is held until the kernel is idle again. A reply and the output before it come from
        the kernel on different sockets, and a reply must not overtake the output: nbclient drops what comes later.
    is_idle: Whether the kernel is idle again after the cell, so that only its reply is missing.
    """

    def __init__(self, request: Message, reason: Reason, place: int) -> None:
        self.request = request.unparsed()
        self.reason, self.place = reason, place
        self.key = request.key
        self.is_cell = request.msg_type == "execute_request"
        self.by_user = is_user_cell(request)
        code = request.content().get("code") if self.by_user else ""
        self.names_code = bool(requested_revision(code))
        self.only_names_code = is_only_request(code)
        self.has_begun = self.is_interrupted = False
        self.reply: Optional[Message] = None
        self.is_idle = False

    def take_over(self, pending: ReceivedRequest) -> None:
        """Take what the log of a killed keeper has of this cell, which the kernel has."""
        is_busy = pending.state == "busy"  # also while a user's cell waits for GPUs
        self.has_begun = pending.count is not None or (is_busy and not self.by_user)
        self.is_idle, self.is_interrupted = pending.state == "idle", pending.is_interrupted

    @property
    def has_failed(self) -> bool:
        """Whether the cell has failed and stops others, and its reply is held."""
        return self.reply is not None and is_failure(self.reply) and stops_others(self.request)

    def __repr__(self) -> str:
        kind = "user's cell" if self.by_user else self.request.msg_type
        return f"{kind} {self.request.msg_id} for {self.reason.name}{' (replied)' if self.reply else ''}"


class Waiting:
    """`add` a request, `admit` a cell: it has a reason then; `take…` and `handle…` remove those that wait no longer."""

    def __init__(self) -> None:
        self._line: Dict[int, WaitingRequest] = {}  # by their places
        self._by_reason: Dict[Reason, Dict[int, WaitingRequest]] = {reason: {} for reason in Reason}
        self._for_code, self._for_gpus = (self._by_reason[reason] for reason in _RESOURCES)
        self._orphaned: Dict[int, WaitingRequest] = {}  # those of front ends that have left
        self._orphaned_keys: AbstractSet[str] = frozenset()
        self._last_place = 0
        self.may_pin = False
        """Whether no user cell of the kernel's process has passed yet, so that the next one may name code."""
        self.knows_begun = True
        """Whether it is known which cells the kernel has begun."""

    def __repr__(self) -> str:
        return f"<Waiting {self.line}>"

    def validate(self) -> None:
        """Raise AssertionError if the line is not as it is whenever the relay has nothing to do."""
        line, code, gpus = self._line.values(), self._by_reason[Reason.CODE], self._by_reason[Reason.GPUS]
        places = [_ORDER[one.reason] for one in line if one.by_user]
        assert places == sorted(places), f"a user's cell has passed one that came before it: {self}"
        assert not (code and gpus), f"some wait for code, some for GPUs: {self}"
        assert self.may_pin or not code, f"cells wait for code that is pinned: {self}"
        orphaned = {one.place: one for one in line if one.key in self._orphaned_keys}
        assert orphaned == self._orphaned, f"it is not known who has left: {self}"
        for one in line:
            assert one.place in self._by_reason[one.reason], f"a request is not where its reason is: {self}"
            assert one.reason not in _RESOURCES or one.by_user, f"a user's cell is none: {self}"
            assert one.reason is Reason.KERNEL or one.is_cell, f"no cell: {self}"
            assert one.reply is None or (one.reason is Reason.REPLY and not one.is_idle), f"replied: {self}"

    @property
    def line(self) -> List[WaitingRequest]:
        """All that wait, in the order of their arrival."""
        return list(self._line.values())

    def all(self, reason: Reason) -> List[WaitingRequest]:
        """Return all that wait for this, in the order of their arrival."""
        requests = self._by_reason[reason]
        return [requests[place] for place in sorted(requests)]

    @property
    def first_cell(self) -> Optional[WaitingRequest]:
        """The first of the cells that wait for code or GPUs, which is shown as busy."""
        if not (self._for_code or self._for_gpus):
            return None
        firsts = (first for first in map(self._first, _RESOURCES) if first is not None)
        return min(firsts, key=lambda one: one.place)

    @property
    def is_executing(self) -> bool:
        """Whether the kernel has cells whose replies have not been sent yet."""
        return bool(self._by_reason[Reason.REPLY])

    def next_cell(self, busy_with: AbstractSet[str]) -> Optional[WaitingRequest]:
        """Return the cell that the kernel will begin next, if it is known that the kernel runs nothing.
        `busy_with`: the keys of the requests that the kernel is busy with."""
        cells = self.all(Reason.REPLY)
        pending = [one for one in cells if one.reply is None and not one.is_idle]
        runs = any(one.has_begun for one in pending) or busy_with - {one.key for one in cells}
        if not pending or runs or not self.knows_begun:
            return None
        return next((one for one in pending if one.by_user), pending[0])

    def is_behind_failure(self, cell: Message) -> bool:
        """Return whether the cell must not run, as an earlier cell of the same client has failed whose reply is held.
        The replies that are held are those to the first of the cells that the kernel has."""
        held = takewhile(lambda one: one.reply is not None, self._by_reason[Reason.REPLY].values())
        return any(one.request.client == cell.client and one.has_failed for one in held)

    def replies(self, key: str) -> List[Optional[Message]]:
        """Return the replies that are held to the cells with this key that the kernel has; None for each other cell."""
        return [one.reply for one in self._executing(key)]

    # -------------------------------------------------------------------------------------- what a request waits for

    def add(self, request: Message, reason: Reason) -> WaitingRequest:
        """Let a request wait at the end of the line."""
        self._last_place += 1
        added = self._line[self._last_place] = WaitingRequest(request, reason, self._last_place)
        self._enter(added, reason)
        if added.key in self._orphaned_keys:
            self._orphaned[added.place] = added
        return added

    def front_end_left(self, orphaned: AbstractSet[str]) -> None:
        """`orphaned`: the keys of the requests of front ends that have left."""
        self._orphaned_keys = orphaned
        self._orphaned = {place: one for place, one in self._line.items() if one.key in orphaned}

    def admit(self, cell: WaitingRequest, has_gpus: bool) -> Reason:
        """The kernel is up: return what this cell waits for from now on. REPLY: it may go to the kernel."""
        reason = Reason.REPLY
        if self._is_behind_former(cell):
            reason = Reason.FORMER_CELLS
        elif cell.by_user:
            reason = self._resource(cell, has_gpus)
        if reason is not cell.reason:  # else the cell would come behind those that it was before
            del self._by_reason[cell.reason][cell.place]
            self._enter(cell, reason)
        return reason

    def _resource(self, cell: WaitingRequest, has_gpus: bool) -> Reason:
        if self.may_pin and (cell.names_code or self._is_behind(cell, Reason.CODE)):
            return Reason.CODE
        self.may_pin = False
        passes = has_gpus or (cell.only_names_code and not self._is_behind(cell, Reason.GPUS))
        return Reason.REPLY if passes else Reason.GPUS

    def _is_behind(self, cell: WaitingRequest, reason: Reason) -> bool:
        """Return whether a user's cell before this one waits for this."""
        first = self._first(reason)
        return first is not None and first.place < cell.place

    def _is_behind_former(self, cell: WaitingRequest) -> bool:
        """Return whether the cell has to wait for cells of a front end that has left, or for cells that wait for those.
        Of users' cells, code that a front end runs for itself waits only for those that the kernel has."""
        if cell.place in self._orphaned:
            return False
        waiting = takewhile(lambda one: one is not cell, self._by_reason[Reason.FORMER_CELLS].values())
        former = (one for one in chain(self._orphaned.values(), waiting) if one.place < cell.place)
        return any(cell.by_user or not one.by_user or one.reason is Reason.REPLY for one in former)

    def _first(self, reason: Reason) -> Optional[WaitingRequest]:
        """Return the first of the users' cells that wait for this: none of them ever passes another one."""
        return next(iter(self._by_reason[reason].values()), None)

    def _enter(self, request: WaitingRequest, reason: Reason) -> None:
        request.reason = reason
        self._by_reason[reason][request.place] = request

    def _executing(self, key: str) -> Iterator[WaitingRequest]:
        """Return the cells with this key that the kernel has. The kernel runs the first ones first."""
        return (one for one in self._by_reason[Reason.REPLY].values() if one.key == key)

    def begin(self, key: str, has_input: bool) -> bool:
        """The kernel is busy with the request with this key, or has sent its input. Return whether a cell begins that
        is to be interrupted. Code that a front end runs for itself may have no input."""
        cell = next((one for one in self._executing(key) if not one.has_begun), None)
        if cell is None or (cell.by_user and not has_input):
            return False
        cell.has_begun = True
        return cell.is_interrupted and cell.reply is None

    # -------------------------------------------------------------------------------------- who waits no longer

    def handle_reply(self, reply: Message) -> List[Message]:
        """Take an execute_reply of the kernel. Return the reply if it may be sent now, else nothing."""
        cells = (one for one in self._executing(reply.parent_key) if one.reply is None)
        cell = next((one for one in cells if one.request.client == reply.client), None)
        if cell is not None and not cell.is_idle:
            cell.reply = reply
            return []
        self._remove([cell] if cell is not None else [])
        return [reply]

    def handle_idle(self, key: str) -> List[Message]:
        """The kernel is idle again after the request with this key. Return its reply if that was held, else nothing."""
        cell = next((one for one in self._executing(key) if not one.is_idle), None)
        if cell is None:
            return []
        if cell.reply is None:
            cell.is_idle = True
            return []
        self._remove([cell])
        return [cell.reply]

    def take(self, reason: Reason, *, only_cells: bool = False) -> List[WaitingRequest]:
        """Remove the requests, or only the cells, that wait for this, and return them."""
        return self._remove([one for one in self.all(reason) if one.is_cell or not only_cells])

    def take_first_cell(self) -> List[WaitingRequest]:
        """Remove the first of the cells that wait for code or GPUs, and those behind it that must not run if it fails.
        Return them; [] if there is none."""
        first = self.first_cell
        if first is None or not stops_others(first.request):
            return self._remove([] if first is None else [first])
        return self._remove([*self.all(Reason.GPUS), *self.all(Reason.CODE)])

    def _remove(self, requests: List[WaitingRequest]) -> List[WaitingRequest]:
        for request in requests:
            del self._by_reason[request.reason][request.place]
            del self._line[request.place]
            self._orphaned.pop(request.place, None)
        return requests
