"""The relay between front ends and the kernel, in both directions.

A request may wait (until the kernel is up, for GPUs), be answered in the kernel's place, or go on to the kernel. The
kernel's messages are put in order and logged, and the hub gets them. This module knows neither sockets nor
processes: the keeper passes functions that send.
"""

from __future__ import annotations

import enum
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Set

from ...wire.kernel_messages.answers import Answers
from ...wire.kernel_messages.compose import Parts, is_user_cell, make
from ...wire.messages import Channel, Lane, Message, MessageError, key_of, lane_of, parent_key_of
from ..gpus.manager import GpuManager
from ..kernel_context import KernelContext
from ..log.log import Log
from ..log.requests import ReceivedRequest
from .code_gate import CodeGate, Pin
from .message_limit import MESSAGE_LIMITS, limit_size
from .reattach import Greeting, GreetingText, Reattach, ToHub
from .requests import Executions, InternalRequests, ReservedCount, ToKernel, is_keepers_own, is_misattributed

_SHUTDOWN = "shutdown_request"


class RelayState(enum.Enum):
    """Whether the kernel takes requests. DOWN: requests wait for the kernel. ENDED: each is answered with an error."""

    DOWN = "down"
    UP = "up"
    ENDED = "ended"


class RelayCallbacks(NamedTuple):
    """What the keeper does for its relay.

    pin: Pin the code for `%gpu code` in the first cell.
    on_user_cell: Called when a user runs a cell.
    """

    pin: Pin = lambda revision, cell, done: lambda: None
    on_user_cell: Callable[[], None] = lambda: None


class Relay:
    """`handle_request` and `handle_kernel_message` pass messages on; `kernel_…` methods report the process's life.

    context: The kernel's.
    gpus: Create the manager of the kernel's GPUs, which makes user cells wait.
    message_limits: The size of one message of the kernel, in bytes.
    """

    def __init__(
        self,
        context: KernelContext,
        log: Log,
        to_kernel: ToKernel,
        to_hub: ToHub,
        gpus: Callable[[Relay], GpuManager],
        callbacks: RelayCallbacks,
        message_limits: Mapping[Lane, int] = MESSAGE_LIMITS,
    ) -> None:
        loop = context.loop
        self.internal_requests = InternalRequests(loop.runtime, to_kernel)
        self._reserved_count = ReservedCount(self.internal_requests)
        self.answers = Answers(self.send, self._reserved_count.reserve)
        self.executions = Executions(self.answers)
        self.aborts = log.state.requests.aborts
        self.reattach = Reattach(log, self.answers, self.send)
        self.greeting_text = GreetingText(context.settings.now, self.reattach)
        self._log = log
        self._was_taken_over = False  # the kernel, from a killed keeper
        self._runtime = loop.runtime
        self._to_kernel = to_kernel
        self._to_hub = to_hub
        self._callbacks = callbacks
        self._message_limits = message_limits
        self.greeting = Greeting(loop, self._pass_to_hub)
        self._state = RelayState.DOWN
        self._end_reason = ""
        self._kernel_info: Dict[str, Any] = {}
        self._early: List[Message] = []  # requests that came while the kernel was down
        self._busy_with: Set[str] = set()  # msg_ids; a control request overlaps with a cell
        self._after_replies: Dict[str, Callable[[], object]] = {}  # by the msg_id of the request
        self._latest_header = b""  # of the latest execute_request of a front end
        self.code = CodeGate(self.answers, callbacks.pin, self._pass_on)
        self.gpus = gpus(self)

    @property
    def busy(self) -> bool:
        """Whether the kernel is busy, or has pending cells."""
        return bool(self._busy_with) or bool(self.executions.pending_ids())

    @property
    def waiting_cells(self) -> List[Message]:
        """The cells that wait for code or GPUs."""
        return [*self.code.cells, *self.gpus.waiting_cells]

    def set_notice(self, text: str) -> None:
        """The first cell should show this text, also while it waits for GPUs."""
        self.greeting_text.set_notice(text)
        self.gpus.set_notice(text)

    # -------------------------------------------------------------------------------------- the kernel's life

    def kernel_starting(self) -> None:
        """A process was started, which takes no requests yet."""
        self._state = RelayState.DOWN
        self._was_taken_over = False
        self._busy_with.clear()
        self.code.kernel_starting(fresh=True)
        self.internal_requests.clear()
        self.answers.clear()
        self._reserved_count.reserve(0)

    def kernel_taken_over(self) -> None:
        """The kernel runs, and may be busy with requests of a killed keeper: the log has those without a reply."""
        pending = list(self._log.state.requests.pending.values())
        self._early = [one.request for one in pending if not one.forwarded]
        self.kernel_starting()
        self.code.kernel_starting(fresh=False)
        self._was_taken_over = True
        self.answers.count_from(self._log.state.requests.count)
        self._reserved_count.reserve(self.answers.count)
        for request in pending:
            self._take_over(request)

    def _take_over(self, pending: ReceivedRequest) -> None:
        if pending.state == "busy":
            self.answers.assume_busy(pending.request, pending.count)
        if pending.forwarded and pending.is_cell:
            self._latest_header = pending.request.parts[0]
            self.executions.add(pending.request)
            if pending.state == "idle":
                self.executions.handle_idle(pending.msg_id)

    def send_again(self) -> None:
        """Send the kernel the requests that a killed keeper has sent, or was about to send. The kernel drops those that
        it has received."""
        for pending in self._log.state.requests.pending.values():
            if pending.forwarded:
                self._to_kernel(pending.request.channel, pending.request.client, pending.request.parts)

    def kernel_up(self, kernel_info: Dict[str, Any]) -> None:
        """The kernel takes requests: send it those that waited. `kernel_info`: the content of its kernel_info_reply."""
        self._state, self._kernel_info = RelayState.UP, kernel_info
        early, self._early = self._early, []
        for request in early:
            self.handle_request(request)

    def kernel_gone(self) -> None:
        """The process has ended, and the reason is not known yet: requests wait for `kernel_ended`."""
        self._state = RelayState.DOWN

    def kernel_ended(self, reason: str, *, for_good: bool) -> None:
        """End every pending cell with this error. `for_good`: no other process follows."""
        self._state = RelayState.DOWN
        self.greeting.end()
        for reply in self.executions.take_held():
            self._send_all([reply])
            self.answers.end_of(reply)
        while self.code.fail("DeadKernelError", reason):
            pass
        self.executions.fail_all(reason)
        self.gpus.fail_all_cells("DeadKernelError", reason)
        for request in self.reattach.unanswered:
            self.executions.refuse(request, reason)
        self.reattach.take_deferred()
        if for_good:
            self._state, self._end_reason = RelayState.ENDED, reason
            self._refuse_early(reason)

    def kernel_restarting(self) -> None:
        """Another process is to follow: it gets the requests from now on, and those that waited are refused."""
        self._state = RelayState.DOWN
        self._refuse_early("the kernel was restarted")

    def _refuse_early(self, reason: str) -> None:
        early, self._early = self._early, []
        for request in early:
            self.executions.refuse(request, reason)

    # -------------------------------------------------------------------------------------- front ends' life

    def front_end_returned(self, other_kernels: Sequence[str]) -> None:
        """Another front end attaches, which knows nothing of the requests so far. `Log.leave` was called before."""
        for _, message in self.greeting.withdraw():
            self._log.add("keep", message)
        self.reattach.begin(self.executions.pending_ids())
        self.greeting_text.front_end_returned(other_kernels)

    # -------------------------------------------------------------------------------------- from front ends

    def admit(self, request: Message) -> bool:
        """Return whether there is room for this request; if not, refuse it."""
        if request.channel is Channel.STDIN or self._log.state.requests.has_room:
            return True
        self.executions.refuse(request, "too many requests are waiting for this kernel", "QueueFull")
        return False

    def handle_request(self, request: Message) -> None:
        """Handle a request that `log.requests.request_type` and `admit` accept."""
        msg_type = request.msg_type
        if msg_type == "interrupt_request" and not self._can_be_interrupted:
            self._interrupt_waiting(request)
        elif self._state is RelayState.ENDED or (self._state is RelayState.DOWN and msg_type == _SHUTDOWN):
            self.executions.refuse(request, self._end_reason)  # the keeper ends a process that is not up
        elif self._state is RelayState.DOWN:
            self._early.append(request.unparsed())
        elif msg_type == "execute_request":
            self._execute(request)
        elif msg_type == "kernel_info_request" and self.busy and request.channel is Channel.SHELL:
            # A new front end gives up on a busy kernel that does not answer this within a minute.
            self.answers.reply(request, self._kernel_info)
            self._send_status("busy")
        else:
            self._forward(request)

    def _execute(self, request: Message) -> None:
        if is_user_cell(request):
            self._callbacks.on_user_cell()
        if self.aborts.should_abort(request):
            return self.answers.abort(request)
        waiting = self.waiting_cells if is_user_cell(request) else []
        if self.reattach.must_wait(self.executions.pending_ids(), waiting):
            self._greet(request)
            return self.reattach.defer(request)
        self._pass_gate(request)

    def _pass_gate(self, request: Message) -> None:
        if not is_user_cell(request) or (self.code.admit(request) and self.gpus.admit(request)):
            self.release(request)

    def _pass_on(self, cell: Message, needs_gpus: bool) -> None:
        if not needs_gpus or self.gpus.admit(cell):
            self.release(cell)

    def release(self, request: Message) -> None:
        """Send an execute_request to the kernel: it need not wait any longer."""
        if is_user_cell(request):
            self._reserved_count.skip()
        self._greet(request)  # not while it waits for GPUs: what it shows meanwhile is cleared
        self._latest_header = request.parts[0]
        self.executions.add(request)
        self._forward(request)

    def _forward(self, request: Message) -> None:
        self._log.add("requests.forward", key_of(request))
        self._to_kernel(request.channel, request.client, request.parts)

    def _greet(self, request: Message) -> None:
        if is_user_cell(request):
            self.greeting.show(
                request, *self.greeting_text.take(self.gpus.acquisition.names, self.gpus.wait_text)
            )

    def interrupt(self) -> None:
        """Handle an interrupt by the hub."""
        if not self._give_up_first_cell() and self._can_be_interrupted:
            self.internal_requests.send(Channel.CONTROL, "interrupt_request", {})

    @property
    def _can_be_interrupted(self) -> bool:
        """Whether there is something to interrupt in the kernel. If it is idle, an interrupt that comes late, after an
        outage, could hit the next cell on its way through the kernel's sockets."""
        return self._state is RelayState.UP and self.busy and not self.waiting_cells

    def _interrupt_waiting(self, interrupt: Message) -> None:
        """Handle an interrupt while nothing runs that could be interrupted, or a cell waits for GPUs or the kernel."""
        self.answers.begin(interrupt)
        self._give_up_first_cell()
        for request in list(self._early):
            if request.msg_type == "execute_request":
                self._early.remove(request)
                self.executions.fail(request, "interrupted before the kernel was up", "KeyboardInterrupt")
        self.answers.reply(interrupt, {"status": "ok"})

    def _give_up_first_cell(self) -> bool:
        """End the first cell that waits for code or GPUs. Return whether there was one."""
        return self.code.fail(
            "KeyboardInterrupt", "interrupted before its code was pinned"
        ) or self.gpus.fail_first_cell("KeyboardInterrupt", "gave up waiting for a GPU")

    # -------------------------------------------------------------------------------------- from the kernel

    def handle_kernel_message(self, channel: Channel, client: int, parts: Parts) -> None:
        """Handle a message of the kernel. One that is malformed is dropped."""
        try:
            message = Message(channel, client, parts)
            messages = limit_size(self._runtime, message, self._message_limits)
        except MessageError:
            return
        for message in messages:
            self._handle_kernel_message(message)

    def _handle_kernel_message(self, message: Message) -> None:
        try:
            if self._latest_header and is_misattributed(message):
                message = message.replace(parts=(message.parts[0], self._latest_header, *message.parts[2:]))
            msg_type, parent = message.msg_type, message.parent_id
        except MessageError:
            return
        if self._was_taken_over and self._is_known(message):
            if not self._log.found:
                self._log.add("keep", message)
            return
        is_news = self.answers.observe(message)
        if self.internal_requests.handle(message) or msg_type == "iopub_welcome":
            return
        if is_keepers_own(message):  # a request of a killed keeper
            return
        if msg_type == "execute_reply" and message.channel is Channel.SHELL:
            return self._send_all(self.executions.handle_reply(message))
        if is_news:
            self._send(lane_of(message, message.msg_type), message)
        if message.channel is Channel.IOPUB and msg_type == "status":
            self._handle_status(parent, message.content().get("execution_state"))

    def _is_known(self, message: Message) -> bool:
        """Return whether the kernel repeats this message, which a killed keeper has received. If that keeper's log is
        lost, so is what the kernel repeats, except for replies that the hub lacks."""
        if is_keepers_own(message):
            return False
        if self._log.found:
            is_held = message.channel is Channel.SHELL and message.parent_id in self.executions.held
            return is_held or self._log.state.repeats(message)
        if message.channel is Channel.IOPUB:
            return self._state is RelayState.DOWN
        return (
            message.channel is not Channel.STDIN
            and parent_key_of(message) not in self._log.state.requests.pending
        )

    def _handle_status(self, parent: str, state: object) -> None:
        (self._busy_with.add if state == "busy" else self._busy_with.discard)(parent)
        if state == "idle":
            self._correct_idle(parent)
            self._send_all(self.executions.handle_idle(parent))

    def _correct_idle(self, parent: str) -> None:
        """Send the kernel's real state after the idle status of this request.

        A front end takes every idle status for the kernel's, also that of a control request while a cell runs; and it
        may know of a busy status whose idle is not sent to it.
        """
        busy = bool(self._busy_with) or bool(self.waiting_cells)
        if self.reattach.is_orphaned(parent) or self.reattach.is_answered(parent):
            busy = busy or any(msg_id != parent for msg_id in self.executions.pending_ids())
            self._send_status("busy" if busy else "idle")
        elif busy:
            self._send_status("busy")

    # -------------------------------------------------------------------------------------- to front ends

    def send(
        self, channel: Channel, client: int, msg_type: str, content: Dict[str, Any], parent: bytes
    ) -> None:
        """Send a message in the kernel's name."""
        message = Message(channel, client, make(self._runtime, msg_type, content, parent))
        self._send(lane_of(message, message.msg_type), message)

    def after_reply(self, msg_id: str, action: Callable[[], object]) -> None:
        """Call `action()` once, when the reply to the cell with this msg_id has been sent."""
        self._after_replies[msg_id] = action

    def _send_status(self, state: str) -> None:
        """Send the kernel's state, as a status without a parent."""
        self.send(Channel.IOPUB, 0, "status", {"execution_state": state}, b"{}")

    def _send_all(self, replies: List[Message]) -> None:
        for reply in replies:
            self._send(Lane.ORDERED, reply)

    def _send(self, lane: Lane, message: Message) -> None:
        parent = message.parent_id
        if self.reattach.is_answered(parent):
            return
        if self.reattach.is_orphaned(parent):
            self._log.add("keep", message)
            self._sent(message)
        elif self.greeting.passes(lane, message):
            self._pass_to_hub(lane, message)

    def _pass_to_hub(self, lane: Lane, message: Message) -> None:
        self._to_hub(lane, message)
        self._sent(message)

    def _sent(self, message: Message) -> None:
        if message.channel is Channel.SHELL and message.msg_type == "execute_reply":
            self._release_deferred()
            self._after_replies.pop(message.parent_id, lambda: None)()

    def _release_deferred(self) -> None:
        pending = self.executions.pending_ids()
        if self._state is RelayState.UP and not self.reattach.must_wait(pending, self.waiting_cells):
            for request in self.reattach.take_deferred():
                self._pass_gate(request)
