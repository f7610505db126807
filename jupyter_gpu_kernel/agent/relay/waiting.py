"""The requests that wait: one line, in the order of their arrival, each with its reason.

A request waits until the kernel's process takes requests. Then a cell waits until the cells of a front end that has
left have ended, and a user's cell also until the code is pinned and until the kernel has its GPUs. At last the kernel
has the cell, which waits for its reply. Requests other than cells go to the kernel as soon as it is up, and wait no
longer. This module decides; `relay.py` sends, answers and pins.
"""

from __future__ import annotations

import enum
from itertools import takewhile
from typing import AbstractSet, List, Optional

from ...wire.kernel_messages.compose import is_user_cell
from ...wire.messages import Message
from ..log.requests import stops_others
from .code_request import is_only_request, requested_revision


class Reason(enum.Enum):
    """What a request waits for. The value is the error text of a cell that is interrupted while it waits for that;
    cells that wait for REPLY or FORMER_CELLS are interrupted in the kernel, or go on."""

    REPLY = "interrupted by the kernel"
    GPUS = "gave up waiting for a GPU"
    CODE = "interrupted before its code was pinned"
    FORMER_CELLS = "interrupted before the cells of the previous front end had ended"
    KERNEL = "interrupted before the kernel was up"


_RESOURCES = (Reason.CODE, Reason.GPUS)
"""What only users' cells wait for."""


class WaitingRequest:
    """A request that waits.

    by_user: Whether the request is a cell that a user has run.
    names_code: Whether the cell begins with `%gpu code REV`. only_names_code: Whether it has nothing else.
    reply: The kernel's reply, which is held until the kernel is idle again. A reply and the output before it come from
        the kernel on different sockets, and a reply must not overtake the output: nbclient drops what comes later.
    is_idle: Whether the kernel is idle again after the cell, so that only its reply is missing.
    """

    def __init__(self, request: Message, reason: Reason) -> None:
        self.request = request.unparsed()
        self.reason = reason
        self.key = request.key
        self.is_cell = request.msg_type == "execute_request"
        self.by_user = is_user_cell(request)
        code = request.content().get("code") if self.by_user else ""
        self.names_code = bool(requested_revision(code))
        self.only_names_code = is_only_request(code)
        self.reply: Optional[Message] = None
        self.is_idle = False

    def __repr__(self) -> str:
        kind = "user's cell" if self.by_user else self.request.msg_type
        return f"{kind} {self.request.msg_id} for {self.reason.name}{' (replied)' if self.reply else ''}"


class Waiting:
    """`add` a request, `admit` a cell: it has a reason then; `take…` and `handle…` remove those that wait no longer."""

    def __init__(self) -> None:
        self.line: List[WaitingRequest] = []
        self.may_pin = False
        """Whether no user cell of the kernel's process has passed yet, so that the next one may name code."""

    def __repr__(self) -> str:
        return f"<Waiting {self.line}>"

    def validate(self) -> None:
        """Raise AssertionError if the line is not as it is whenever the relay has nothing to do."""
        places = [list(Reason).index(one.reason) for one in self.line if one.by_user]
        assert places == sorted(places), f"a user's cell has passed one that came before it: {self}"
        assert not (self.all(Reason.CODE) and self.all(Reason.GPUS)), (
            f"some wait for code, some for GPUs: {self}"
        )
        assert self.may_pin or not self.all(Reason.CODE), f"cells wait for code that is pinned: {self}"
        for one in self.line:
            assert one.reason not in _RESOURCES or one.by_user, f"a user's cell is none: {self}"
            assert one.reason is Reason.KERNEL or one.is_cell, f"no cell: {self}"
            assert one.reply is None or (one.reason is Reason.REPLY and not one.is_idle), f"replied: {self}"

    def all(self, reason: Reason) -> List[WaitingRequest]:
        """Return all that wait for this."""
        return [one for one in self.line if one.reason is reason]

    @property
    def first_cell(self) -> Optional[WaitingRequest]:
        """The first of the cells that wait for code or GPUs, which is shown as busy."""
        return next((one for one in self.line if one.reason in _RESOURCES), None)

    @property
    def is_executing(self) -> bool:
        """Whether the kernel has cells whose replies have not been sent yet."""
        return any(one.reason is Reason.REPLY for one in self.line)

    def executing(self, key: str) -> List[WaitingRequest]:
        """Return the cells with this key that the kernel has. Clients of one KernelManager use the same msg_ids."""
        return [one for one in self.all(Reason.REPLY) if one.key == key]

    # -------------------------------------------------------------------------------------- what a request waits for

    def add(self, request: Message, reason: Reason) -> WaitingRequest:
        """Let a request wait at the end of the line."""
        self.line.append(WaitingRequest(request, reason))
        return self.line[-1]

    def admit(self, cell: WaitingRequest, orphaned: AbstractSet[str], has_gpus: bool) -> Reason:
        """The kernel is up: return what this cell waits for from now on. REPLY: it may go to the kernel.

        orphaned: The keys of the requests of front ends that have left.
        """
        ahead = list(takewhile(lambda one: one is not cell, self.line))
        cell.reason = Reason.REPLY
        if _is_behind_former(cell, ahead, orphaned):
            cell.reason = Reason.FORMER_CELLS
        elif cell.by_user:
            cell.reason = self._resource(cell, {one.reason for one in ahead}, has_gpus)
        return cell.reason

    def _resource(self, cell: WaitingRequest, reasons: AbstractSet[Reason], has_gpus: bool) -> Reason:
        """`reasons`: of those ahead of the cell."""
        if self.may_pin and (cell.names_code or Reason.CODE in reasons):
            return Reason.CODE
        self.may_pin = False
        passes = has_gpus or (cell.only_names_code and Reason.GPUS not in reasons)
        return Reason.REPLY if passes else Reason.GPUS

    # -------------------------------------------------------------------------------------- who waits no longer

    def handle_reply(self, reply: Message) -> Optional[Message]:
        """Take an execute_reply of the kernel. Return it if it may be sent now."""
        cells = (one for one in self.executing(reply.parent_key) if one.reply is None)
        cell = next((one for one in cells if one.request.client == reply.client), None)
        if cell is not None and not cell.is_idle:
            cell.reply = reply
            return None
        self._remove([cell] if cell is not None else [])
        return reply

    def handle_idle(self, key: str) -> Optional[Message]:
        """The kernel is idle again after the request with this key. Return its reply if that was held."""
        cell = next((one for one in self.executing(key) if not one.is_idle), None)
        if cell is None:
            return None
        cell.is_idle = cell.reply is None
        self._remove([] if cell.is_idle else [cell])
        return cell.reply

    def take(self, reason: Reason, *, only_cells: bool = False) -> List[WaitingRequest]:
        """Remove the requests, or only the cells, that wait for this, and return them."""
        return self._remove([one for one in self.all(reason) if one.is_cell or not only_cells])

    def take_first_cell(self) -> List[WaitingRequest]:
        """Remove the first of the cells that wait for code or GPUs, and those behind it that must not run if it fails.
        Return them; [] if there is none."""
        cells = [one for one in self.line if one.reason in _RESOURCES]
        return self._remove(cells if cells and stops_others(cells[0].request) else cells[:1])

    def _remove(self, requests: List[WaitingRequest]) -> List[WaitingRequest]:
        if requests:
            removed = set(requests)
            self.line = [one for one in self.line if one not in removed]
        return requests


def _is_behind_former(cell: WaitingRequest, ahead: List[WaitingRequest], orphaned: AbstractSet[str]) -> bool:
    """Return whether the cell has to wait for cells of a front end that has left, or for cells that wait for those. Of
    users' cells, code that a front end runs for itself waits only for those that the kernel has."""
    if not orphaned or cell.key in orphaned:
        return False
    former = [one for one in ahead if one.reason is Reason.FORMER_CELLS or one.key in orphaned]
    return any(cell.by_user or not one.by_user or one.reason is Reason.REPLY for one in former)
