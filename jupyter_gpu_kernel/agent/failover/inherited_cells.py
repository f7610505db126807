"""What a successor does about cells that the killed keeper had received.

The hub lists the cells that it has no reply for. The kernel answers those that it runs or has in its queue. A cell
whose reply went to the killed keeper, or to none, ends with an error. One whose reply has come, but perhaps not all of
its output, shows a notice (`lost_output.py`). A cell that the kernel never began is sent to it now.

Which cell is which is known once the kernel has replied to internal requests on its shell channel, has published
nothing about cells in between, and has listed the cells that it began. Until then, cells that the hub sends are held:
it may have sent them before. So each cell runs once.
"""

from __future__ import annotations

import ast
import enum
from typing import Any, Callable, Dict, List, Set

from ...wire.compose import make
from ...wire.fields import number
from ...wire.messages import Channel, Message
from ..loop import Loop
from ..relay.received_cells import UNKNOWN_STATE, read_unanswered
from ..relay.relay import Relay
from ..takeover import SESSION
from .lost_output import LostOutput

FEATURE = "unanswered"
"""The feature in the HELLO of a hub that lists the cells it has no reply for."""
INTERVAL = 0.1
QUIET_REPLIES = 3
"""Replies in a row without a sign of a cell between them: the kernel may take an older request after each of ours."""
_LIST_BEGUN = "__import__('gpu_kernel').begun()"
_OUTPUT_LOST = "this cell has run, but its last output and result are lost: the kernel's keeper was killed"
_RESULT_UNKNOWN = (
    "it is unknown whether this cell has run: the kernel's keeper was killed, and then the kernel ended"
)


class InheritanceState(enum.Enum):
    """STARTING: the kernel does not reply yet. PROBING: it is asked until it is quiet. ENDED: it has ended."""

    STARTING = "starting"
    PROBING = "probing"
    SETTLED = "settled"
    ENDED = "ended"


class InheritedCells:
    """Calls `on_settled(busy)` when it is known what becomes of each cell; `busy`: the kernel still runs some."""

    def __init__(self, loop: Loop, relay: Relay, on_settled: Callable[[bool], None]) -> None:
        self.listed = False
        """Whether the hub has listed its cells, or never will."""
        self._loop = loop
        self._relay = relay
        self._on_settled = on_settled
        self._state = InheritanceState.STARTING
        self._cells: List[Message] = []  # listed by the hub
        self._held: List[Message] = []  # sent by the hub since the takeover
        self._replied: Set[str] = set()  # msg_ids of the cells that the kernel replied to since the takeover
        self._running: Dict[
            str, bool
        ] = {}  # msg_id: whether the kernel has last published that it runs this cell
        self._states: Dict[
            str, str
        ] = {}  # msg_id: the last status of the cell that front ends have been sent
        self._signs = 0  # of cells: their statuses, inputs and replies
        self._lost_output = LostOutput(relay.send)

    @property
    def over(self) -> bool:
        """Whether the kernel that was taken over has ended."""
        return self._state is InheritanceState.ENDED

    def probe(self) -> None:
        """Find out which cells the kernel has, which replies to requests by now."""
        self._state = InheritanceState.PROBING
        self._ask(quiet=0)

    def kernel_ended(self) -> None:
        """The kernel has ended, and its pending cells have ended with an error."""
        self._state = InheritanceState.ENDED
        held, self._held = self._held, []
        for cell in held:
            self._relay.handle_request(cell)

    def hold(self, request: Message) -> bool:
        """Return whether the request is held: the kernel may have received it, or an earlier one, from the killed
        keeper; nor may it overtake a listed cell that still has to be sent to the kernel."""
        if self.over or (self.listed and not self._held and not self._cells):
            return False
        if request.channel is not Channel.SHELL or request.msg_type != "execute_request":
            return False
        self._held.append(request.unparsed())
        return True

    def set_unanswered(self, command: Dict[str, Any]) -> List[Message]:
        """The hub has no reply for the "cells"; "count" is the execution count of the last cell that it knows.
        Return the cells. Raises FieldError or MessageError if the command is malformed."""
        cells = read_unanswered(command)
        answers = self._relay.answers
        answers.count_from(number(command, "count", 0))
        self.listed = True
        known = {*self._replied, *self._relay.unanswered_ids(), *(cell.msg_id for cell in self._held)}
        self._cells = [cell.request for cell in cells if cell.request.msg_id not in known]
        for request, state in cells:
            self._states[request.msg_id] = state
            if state == "busy":
                answers.assume_busy(request)
        for request in self._cells:
            self._add(request)
            if self.over:
                self._relay.executions.fail(request, _RESULT_UNKNOWN, "KeeperError")
        if self._state is InheritanceState.SETTLED:
            self.probe()
        return [cell.request for cell in cells]

    def _add(self, cell: Message) -> None:
        self._relay.inherit(cell)
        if self._states.get(cell.msg_id) == "idle" or self._running.get(cell.msg_id) is False:
            self._relay.executions.handle_idle(cell.msg_id)

    # -------------------------------------------------------------------------------------- observe the kernel

    def observe(self, message: Message) -> None:
        """Take note of a message to front ends, of the kernel or in its name."""
        if self.over and not self.listed and _is_execute_reply(message):
            self._replied.add(message.parent_id)  # else it would be answered again when the hub lists it
        if self.over:
            return
        if message.parent().get("session") != SESSION:  # else it is of a request of the killed keeper itself
            self._lost_output.observe(message)
        if self.listed and self._state is InheritanceState.SETTLED:
            return
        msg_type = message.msg_type
        if _is_execute_reply(message):
            self._replied.add(message.parent_id)
            if self._running.get(message.parent_id) is not False:
                self._relay.executions.expect_idle(message.parent_id)
        elif msg_type == "execute_input":
            self._running[message.parent_id] = True
        elif msg_type == "status":
            self._running[message.parent_id] = message.content().get("execution_state") != "idle"
        else:  # output, also of threads, which may never be quiet
            return
        self._signs += 1

    def _ask(self, quiet: int) -> None:
        """Repeat the request until QUIET_REPLIES replies have come with nothing about cells between them. `quiet`: the
        number of such replies so far."""
        signs = self._signs

        def on_result(result: Dict[str, Any]) -> None:
            begun = result.get("data", {}).get("text/plain")  # None: aborted behind a cell that failed
            quiet_now = quiet + 1 if signs == self._signs and begun else 0
            if quiet_now < QUIET_REPLIES:
                self._loop.later(INTERVAL, lambda: self._ask(quiet_now))
            else:
                self._settle(_names(begun))

        if self._state is InheritanceState.PROBING:
            self._relay.internal_requests.evaluate(_LIST_BEGUN, on_result, after_idle=True)

    # -------------------------------------------------------------------------------------- settle

    def _settle(self, begun: List[str]) -> None:
        """`begun`: the msg_ids of the cells that the kernel began, or of the last of them."""
        self._state = InheritanceState.SETTLED
        self._release_replies()
        self._lost_output.settle(begun)
        if self.listed:
            held = [cell for cell in self._held if cell.msg_id not in self._replied]
            for cell in held:
                self._add(cell)
            self._cells += held
            self._held = []
        cells, self._cells = self._cells, []
        lost = [
            cell for cell in cells if not (cell.msg_id in self._replied or self._running.get(cell.msg_id))
        ]
        running = set(self._relay.executions.pending_ids()) - {cell.msg_id for cell in lost}
        self._on_settled(bool(running))
        for cell in lost:
            self._finish_lost(cell, cell.msg_id in begun)

    def _release_replies(self) -> None:
        """The idle status that these replies wait for was published when nobody received it."""
        for reply in self._relay.executions.held():
            idle = make(self._loop.runtime, "status", {"execution_state": "idle"}, reply.parts[1])
            self._relay.handle_kernel_message(Channel.IOPUB, 0, idle)

    def _finish_lost(self, cell: Message, began: bool) -> None:
        """End a cell that the kernel does not run and will not reply to, or send it to the kernel."""
        if self._states.get(cell.msg_id) != "idle":  # else front ends have all but the reply
            self._relay.executions.remove(cell)
        if not began:
            if cell.msg_id in self._running:  # it was idle without having begun: the kernel aborted it
                return self._relay.answers.abort(cell)
            return self._relay.handle_request(cell)
        if self._states.get(cell.msg_id, UNKNOWN_STATE) == UNKNOWN_STATE:
            self._relay.answers.assume_busy(cell)
        self._relay.executions.fail(cell, _OUTPUT_LOST, "KeeperError")


def _is_execute_reply(message: Message) -> bool:
    """Return whether this is the reply to a cell."""
    return message.channel is Channel.SHELL and message.msg_type == "execute_reply"


def _names(text: str) -> List[str]:
    """Parse the list of strings that the kernel shows; [] if it shows something else."""
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
