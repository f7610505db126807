"""What goes between front ends and the kernel, in both directions: what waits, what is answered here, what is kept.

A request may wait (until the kernel is up, for GPUs), be answered in the kernel's place (aborted, ended, ahead), or
go on. What the kernel says is put in order, kept in the history, and sent. No sockets, no processes: the keeper
gives it ways to send.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Set

from ...wire.answers import Answers
from ...wire.compose import Parts, make, user_cell
from ...wire.fields import text
from ...wire.messages import MOST_PARTS, Channel, Lane, Message, MessageError, lane_of
from ..gpus.manager import GpuManager
from . import message_limit
from .aborts import Aborts
from .deferred_cells import DeferredCells
from .executions import Executions
from .greeting import Greeting, Later
from .internal_requests import OURS, InternalRequests
from .output.history import History
from .queue_limit import QueueLimit
from .reattach import Reattach

ToKernel = Callable[[Channel, int, Parts], None]
ToHub = Callable[[Lane, Message], None]
OnMessage = Callable[[Message, str, str], None]
_REQUESTS = (Channel.SHELL, Channel.CONTROL, Channel.STDIN)
_ID = 256
"""Characters of a message's id or type."""


class Relay:
    """`heard` from a front end, `said` by the kernel; `begin` when it is up, `end` when it is gone."""

    def __init__(
        self,
        to_kernel: ToKernel,
        to_hub: ToHub,
        later: Later,
        facts: Callable[[], Dict[str, Any]],
        gpus: Callable[[Relay], GpuManager],
        *,
        on_user_cell: Callable[[], None] = lambda: None,
        on_reply: Callable[[str], None] = lambda msg_id: None,
        on_message: OnMessage = lambda message, msg_type, parent: None,
        most: Mapping[Lane, int] = message_limit.MOST,
    ) -> None:
        """Create the relay of one kernel.

        facts: Return what `Reattach.greeting` tells a front end.
        gpus: Create the manager of the kernel's GPUs, which makes user cells wait.
        on_user_cell: Called when a user runs a cell.
        on_reply: Called when the reply to the cell with this msg_id has been sent to the front end.
        on_message: Called with every message to front ends, its type and its parent's msg_id.
        most: The size limit of the kernel's messages, in bytes.
        """
        self._most = most
        self._limit = QueueLimit()
        self.internal_requests = InternalRequests(to_kernel)
        self.history = History()
        self.answers = Answers(self.say, self._numbered)
        self.cells = Executions(self.answers)
        self.reattach = Reattach(self.history, self.say)
        self.aborts = Aborts()
        self._on_user_cell = on_user_cell
        self._on_reply = on_reply
        self._on_message = on_message
        self.presumed_busy = False
        """Whether the kernel may be busy with what nobody here has asked (a killed keeper did)."""
        self._at_work: Set[str] = set()  # what it is busy with; a control request overlaps with a cell
        self._deferred = DeferredCells(self.answers)
        self._to_kernel = to_kernel
        self._to_hub = to_hub
        self._facts = facts
        self._greeting = Greeting(to_hub, later)
        self._up = False
        self._used = 0  # the number of the last cell that was answered here, until the kernel knows
        self._latest = b""  # header of the latest code that a front end had run
        self._kernel_info: Dict[str, Any] = {}
        self._ended = ""  # why no kernel will hear anything more
        self._early: List[Message] = []  # what came before the kernel could hear
        self.gpus = gpus(self)

    @property
    def busy(self) -> bool:
        """Whether the kernel works, or has cells before it."""
        return self.presumed_busy or bool(self._at_work) or bool(self.cells.open_ids())

    # -------------------------------------------------------------------------------------- the kernel's life

    def starts(self) -> None:
        """A process was started, which hears nothing yet."""
        self._up, self._ended, self.presumed_busy = False, "", False
        self._at_work.clear()
        self.internal_requests.forget()
        self.answers.forget()
        self._used = 0
        self._limit.forget()
        for message in self._early:
            self._limit.admits(message, _id(message))

    def begin(self, kernel_info: Dict[str, Any]) -> None:
        """The kernel is up, and said this of itself: what waited goes to it."""
        self._up, self._kernel_info = True, kernel_info
        early, self._early = self._early, []
        for message in early:
            self.heard(message)

    def end(self, why: str, *, for_good: bool) -> None:
        """The process is gone: every cell that it left unanswered ends with an error. `for_good`: no other follows."""
        self._up = False
        self._greeting.end()
        for reply in self.cells.end():
            self._send_all([reply])
            self.answers.end_of(reply)
        self.cells.fail_all(why)
        while self.gpus.give_up("DeadKernelError", why):
            pass  # the next cell in line, where a failed one does not take along those behind it
        for waiting in self._deferred.unanswered:
            self.cells.refuse(waiting, why)
        self._deferred.take()  # what was answered already goes unsaid
        if for_good:
            self._ended = why
            self._fail_early(why)

    def pauses(self) -> None:
        """The process is gone, and it is not yet known why: what is asked from now on waits for `end`."""
        self._up = False

    def restarts(self) -> None:
        """Another process is to come: what is asked from now on is for that one, what waited is not."""
        self._up = False
        self._fail_early("the kernel was restarted")

    def _fail_early(self, why: str) -> None:
        early, self._early = self._early, []
        for message in early:
            self.cells.refuse(message, why)

    def returned(self, undelivered: Iterable[Message], others: Sequence[str]) -> None:
        """Another front end comes, which knows nothing of what was asked so far. See Absence.begin."""
        held_back = [message for _, message in self._greeting.withdraw()]
        self.reattach.begin([*undelivered, *held_back], self.unfinished(), others)
        self.aborts.forget()

    def unfinished(self) -> List[str]:
        """The msg_ids of what was asked and is not answered."""
        asked = [*self.cells.open(), *self.gpus.held, *self._early, *self._deferred.unanswered]
        return [str(one.header().get("msg_id")) for one in asked]

    def inherits(self, cell: Message) -> None:
        """A cell that a killed keeper may have sent to the kernel."""
        self.aborts.asked(cell)
        self.cells.sent(cell)

    # -------------------------------------------------------------------------------------- from front ends

    @staticmethod
    def type_of(message: Message) -> str:
        """A request's type. FieldError, MessageError: it is none that a kernel could take."""
        if message.channel not in _REQUESTS or not 4 <= len(message.parts) <= MOST_PARTS:
            raise MessageError(f"a request of {len(message.parts)} parts for {message.channel.name}")
        header = message.header()
        text(header, "msg_id", most=_ID, least=1)
        message.parent(), message.metadata(), message.content()
        return text(header, "msg_type", most=_ID)

    def admits(self, message: Message) -> bool:
        """Whether there is room for this request; if not, it is refused."""
        if self._limit.admits(message, _id(message)):
            return True
        self.cells.refuse(message, "more requests wait for this kernel than there is room for", "QueueFull")
        return False

    def heard(self, message: Message) -> None:
        """A request, of which `type_of` has told what it is."""
        msg_type = message.header().get("msg_type")
        if msg_type == "interrupt_request" and (self.gpus.held or not self._up):
            return self._interrupt_here(message)
        if self._ended:
            return self.cells.refuse(message, self._ended)
        if not self._up:
            return self._early.append(message.unparsed())
        if msg_type == "execute_request":
            return self._execute(message)
        if msg_type == "input_reply":
            self.history.answered(message)
        if msg_type == "kernel_info_request" and self.busy and message.channel is Channel.SHELL:
            return self._introduce(message)
        self._to_kernel(message.channel, message.client, message.parts)

    def _execute(self, message: Message) -> None:
        if user_cell(message):
            self._on_user_cell()
            self.history.asked(message)
        if self.aborts.aborts(message):
            return self.answers.abort(message)
        self.aborts.asked(message)
        if any(map(self.reattach.concerns, self.cells.open_ids())):
            self._greet(message)
            return self._deferred.wait(message)
        self._admit(message)

    def _admit(self, message: Message) -> None:
        if not user_cell(message) or self.gpus.passes(message):
            self.release(message)

    def release(self, message: Message) -> None:
        """An execute_request that need not wait any longer."""
        if self._used and user_cell(message):
            self._skip()
        self._greet(message)  # not while it waits for GPUs: what it shows meanwhile is cleared
        self._latest = message.parts[0]
        self.cells.sent(message)
        self._to_kernel(message.channel, message.client, message.parts)

    def _greet(self, message: Message) -> None:
        if user_cell(message):
            text, seconds = self.reattach.greeting(self._facts)
            if text:
                self._greeting.show(message, text, seconds)

    def _introduce(self, message: Message) -> None:
        """For a busy kernel: front ends that come give up on one that does not say for a minute who it is."""
        self.answers.reply(message, self._kernel_info)
        self._report("busy")

    def _numbered(self, number: int) -> None:
        """A cell was answered here: the kernel has to give this number to none of its own."""
        self._used = number

    def _skip(self) -> None:
        """The next cell gets another number."""
        used = self._used

        def skipped(answer: Dict[str, Any]) -> None:
            if (
                answer and self._used == used
            ):  # else it was aborted, with what else was behind a cell that failed
                self._used = 0

        self.internal_requests.run("__import__('gpu_kernel').skip(%d)" % used, skipped)

    def interrupt(self, cells: Iterable[str], *, late: bool) -> None:
        """The hub's word. These cells do not run if they come later. `late`: asked for during an outage, so the kernel
        is left alone if it has nothing to interrupt any more."""
        self.aborts.interrupted(cells)
        if self.gpus.give_up("KeyboardInterrupt", "gave up waiting for a GPU"):
            return
        if self._up and (self.busy or not late):
            self.internal_requests.ask(Channel.CONTROL, "interrupt_request", {})

    def _interrupt_here(self, message: Message) -> None:
        """A cell waits at the gate, or the kernel is still starting: nothing in it could be interrupted."""
        self.answers.begin(message)
        self.gpus.give_up("KeyboardInterrupt", "gave up waiting for a GPU")
        for early in list(self._early):
            if early.header().get("msg_type") == "execute_request":
                self._early.remove(early)
                self.cells.fail(early, "interrupted before the kernel was up", "KeyboardInterrupt")
        self.answers.reply(message, {"status": "ok"})

    # -------------------------------------------------------------------------------------- from the kernel

    def said(self, channel: Channel, client: int, parts: Parts) -> None:
        """A message of the kernel."""
        try:
            messages = message_limit.within(Message(channel, client, parts), self._most)
        except MessageError:
            return
        for message in messages:
            self._said(message)

    def _said(self, message: Message) -> None:
        channel = message.channel
        try:
            msg_type = message.msg_type
            if self._latest and self._strayed(channel, msg_type, message.parent()):
                message = message.replace(parts=(message.parts[0], self._latest, *message.parts[2:]))
            parent = message.parent_id
        except MessageError:
            return
        news = self.answers.saw(message)
        if self.internal_requests.mine(message, msg_type, parent) or msg_type == "iopub_welcome":
            return
        self._on_message(message, msg_type, parent)
        if msg_type == "execute_reply" and channel is Channel.SHELL:
            return self._send_all(self.cells.replied(message))
        if news:
            self._send(lane_of(message, msg_type), message, parent)
        if channel is Channel.IOPUB and msg_type == "status":
            state = message.content().get("execution_state")
            self._limit.began(parent)
            (self._at_work.add if state == "busy" else self._at_work.discard)(parent)
            if state == "idle":
                self._report_after(parent)
                self._send_all(self.cells.went_idle(parent))

    def _report_after(self, parent: str) -> None:
        """A front end takes every idle for the kernel's, also that of a request on the control channel in the middle
        of a cell; and an idle that is kept from it may follow a busy that it has heard."""
        works = self.presumed_busy or bool(self._at_work) or bool(self.gpus.held)
        if self.reattach.concerns(parent) or self._deferred.concerns(parent):
            works = works or any(one != parent for one in self.cells.open_ids())
            self._report("busy" if works else "idle")
        elif works:
            self._report("busy")

    @staticmethod
    def _strayed(channel: Channel, msg_type: str, parent: Dict[str, Any]) -> bool:
        """What a user's thread prints gets the latest request for its parent, in some ipykernels; if that is one of
        ours, of which front ends know nothing, it belongs to the one before."""
        output = channel is Channel.IOPUB and msg_type not in ("status", "execute_input")
        return output and parent.get("session") == OURS

    # -------------------------------------------------------------------------------------- to front ends

    def say(
        self, channel: Channel, client: int, msg_type: str, content: Dict[str, Any], parent: bytes
    ) -> None:
        """A message in the kernel's name."""
        message = Message(channel, client, make(msg_type, content, parent, self.internal_requests.session))
        answered = str(message.parent().get("msg_id", ""))
        if content.get("execution_state") == "idle":
            self._limit.began(answered)
        self._on_message(message, msg_type, answered)
        self._send(lane_of(message, msg_type), message, answered)

    def _report(self, state: str) -> None:
        """The kernel's state, which is no request's."""
        self.say(Channel.IOPUB, 0, "status", {"execution_state": state}, b"{}")

    def _send_all(self, replies: List[Message]) -> None:
        for reply in replies:
            self._send(Lane.ORDERED, reply, str(reply.parent().get("msg_id", "")))

    def _send(self, lane: Lane, message: Message, parent: str) -> None:
        if self._deferred.concerns(parent):
            return
        self.history.take(message, parent)
        if not self.reattach.concerns(parent) and self._greeting.passes(lane, message, parent):
            self._to_hub(lane, message)
        if message.channel is Channel.SHELL and b'"execute_reply"' in message.parts[0]:
            self.aborts.replied(parent, message)
            self._on_reply(parent)
            if self._up and not any(map(self.reattach.concerns, self.cells.open_ids())):
                for waiting in self._deferred.take():
                    self._admit(waiting)


def _id(message: Message) -> str:
    return str(message.header().get("msg_id"))
