"""After a keeper was killed: what becomes of the cells that it knew, and the one in its place does not.

The hub says which of its cells it has no reply for. Those that the kernel runs or has before it, it answers as ever
(or, where the reply was for the dead one, we do, by what the kernel published). Those that ended while nobody
listened end with an error. Those that never came to the kernel go to it now. Which those are is known when the
kernel has answered on its shell channel, said nothing of any of them before, and told which it began. Cells that the
hub sends again, as nobody acknowledged them, wait for that, too: each runs once. No sockets here.
"""

from __future__ import annotations

import ast
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set

from ...wire.compose import aborted_reply, error_reply, make
from ...wire.fields import number
from ...wire.messages import Channel, Message
from ..keeper.handlers import UNKNOWN_STATE, UnansweredCell
from ..loop import Loop
from ..relay.relay import Relay

FEATURE = "unanswered"
"""What a hub says in its HELLO that tells what it waits for."""
PAUSE = 0.1
QUIET = 3
"""So many answers of an otherwise silent kernel: it takes what came from the dead keeper, and from us, in turns."""
_BEGUN = "__import__('gpu_kernel').begun()"
_ENDED = (
    "this kernel's keeper was killed, and with it what this cell said last, and how it ended; the cell ran"
)
_UNKNOWN = "this kernel's keeper was killed, and then the kernel ended: what came of this cell is not known"


class Trace(NamedTuple):
    """What the kernel published of a cell."""

    number: int = 0
    error: Optional[Dict[str, Any]] = None
    ended: bool = False


class InheritedCells:
    """`begin` when the kernel hears us, `end` when it is gone; `unanswered` what the hub says, `waits` for what it
    asks. `on_quiet(busy)` once the kernel has come through what it had before; `busy`: some of it runs beside."""

    def __init__(self, loop: Loop, relay: Relay, on_quiet: Callable[[bool], None]) -> None:
        self.listed = False
        """Whether the hub has said what it waits for, or never will."""
        self.over = False
        self._loop = loop
        self._talk = relay
        self._on_quiet = on_quiet
        self._up = False
        self._cells: List[Message] = []
        self._again: List[Message] = []
        self._traces: Dict[str, Trace] = {}
        self._answered: Set[str] = set()
        self._heard: Dict[str, str] = {}  # msg_id: the last state that front ends heard of a cell
        self._said = 0
        self._watching = True  # whether the kernel may still say something of these cells

    def begin(self) -> None:
        """The kernel hears us."""
        self._up = True
        self._ask(self._said, 0)

    def end(self) -> None:
        """The kernel is gone, and its cells have heard so."""
        self._up, self._watching, self.over = False, False, True
        again, self._again = self._again, []
        for cell in again:
            self._talk.handle_request(cell)

    def waits(self, message: Message) -> bool:
        """Whether this may have come to the kernel already, or follows one that may: kept until that is known."""
        if self.over or (self.listed and not self._again):
            return False
        if message.channel is not Channel.SHELL or b'"execute_request"' not in message.parts[0]:
            return False
        self._again.append(message.unparsed())
        return True

    def unanswered(self, waiting: List[UnansweredCell], count: int) -> None:
        """The hub waits for these, or does not tell. `count`: the number of the last cell that it knows."""
        self.listed = True
        self._talk.answers.count = max(self._talk.answers.count, count)
        known = {*self._answered, *self._talk.unanswered_ids(), *(cell.msg_id for cell in self._again)}
        self._cells = [one.request for one in waiting if one.request.msg_id not in known]
        for cell, heard in waiting:
            self._heard[cell.msg_id] = heard
            if heard == "busy":
                self._talk.answers.assume_busy(cell)
        for cell in self._cells:
            self._inherit(cell)
            if self.over:
                self._talk.executions.fail(cell, _UNKNOWN, "KeeperError")
        if self._up:
            self._ask(self._said, 0)

    def _inherit(self, cell: Message) -> None:
        self._talk.inherit(cell)
        if self._heard.get(cell.msg_id) == "idle":
            self._talk.executions.handle_idle(cell.msg_id)

    # -------------------------------------------------------------------------------------- listening

    def observe(self, message: Message) -> None:
        """Take note of a message to front ends, by the kernel or in its name."""
        if not self._watching:
            return
        self._said += 1
        msg_type, parent = message.msg_type, message.parent_id
        trace = self._traces.get(parent, Trace())
        if message.channel is Channel.SHELL and msg_type == "execute_reply":
            self._answered.add(parent)
        elif msg_type == "execute_input":
            self._traces[parent] = trace._replace(number=number(message.content(), "execution_count", 0))
        elif msg_type == "error":
            self._traces[parent] = trace._replace(error=message.content())
        elif msg_type == "status":
            ended = message.content().get("execution_state") == "idle"
            self._traces[parent] = trace._replace(ended=ended)

    def _ask(self, said: int, quiet: int) -> None:
        """Again and again, until the kernel answers and has nothing else to say."""

        def answered(answer: Dict[str, Any]) -> None:
            # None: aborted with cells behind one that failed.
            begun = answer.get("data", {}).get("text/plain")
            still = quiet + 1 if said == self._said and begun else 0
            if still < QUIET:
                self._loop.later(PAUSE, lambda: self._ask(self._said, still))
            else:
                self._settle(_names(begun))

        if self._up:
            self._talk.internal_requests.evaluate(_BEGUN, answered)

    # -------------------------------------------------------------------------------------- the end of it

    def _settle(self, begun: List[str]) -> None:
        """`begun`: the cells that the kernel ever began, or the last of them."""
        again, self._again = (self._again, []) if self.listed else ([], self._again)
        for cell in again:
            self._inherit(cell)
        cells, self._cells = [*self._cells, *again], []
        running, lost = [], []
        for cell in cells:
            trace = self._traces.get(cell.msg_id)
            if cell.msg_id in self._answered:
                continue
            if trace is None:
                lost.append(cell)
            elif trace.ended:
                self._answer(cell, trace, cell.msg_id in begun)
            else:
                running.append(cell)
        self._finish(bool(running))
        for cell in lost:
            if cell.msg_id in begun:
                if (
                    self._heard.get(cell.msg_id, UNKNOWN_STATE) == UNKNOWN_STATE
                ):  # it began before, most probably
                    self._talk.answers.assume_busy(cell)
                self._talk.executions.fail(cell, _ENDED, "KeeperError")
            else:  # or aborted, if one before it failed
                self._talk.executions.remove(cell)
                self._talk.handle_request(cell)

    def _finish(self, running: bool) -> None:
        if self.listed:
            self._watching = False
        self._on_quiet(running)

    def _answer(self, cell: Message, trace: Trace, ran: bool) -> None:
        """The kernel's own reply went to the one who is dead."""
        reply: Dict[str, Any] = {"status": "ok", "user_expressions": {}, "payload": []}
        if trace.error is not None:
            reply = error_reply(str(trace.error.get("ename")), str(trace.error.get("evalue")), 0)
            reply.update(trace.error)
        reply["execution_count"] = trace.number or self._talk.answers.count
        if not ran:
            reply = aborted_reply()
        self._talk.executions.handle_idle(cell.msg_id)  # which may have been before the hub named it
        parts = make("execute_reply", reply, cell.parts[0], self._talk.internal_requests.session)
        self._talk.handle_kernel_message(Channel.SHELL, cell.client, parts)


def _names(shown: str) -> List[str]:
    """The list that a kernel shows; none where it shows something else."""
    try:
        names = ast.literal_eval(shown)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
