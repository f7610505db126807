"""The relay between front ends and the kernel, in both directions.

`handle_request` answers a request in the kernel's place, lets it wait (`waiting.py`), or forwards it to the kernel.
`handle_kernel_message` passes the kernel's messages on to `_send_one`: those for a front end that has left are only
logged, others are held back while a greeting is read, and then the hub gets them. No sockets or processes are known.
"""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, Iterable, Optional, Sequence, Set

from ...wire.kernel_messages.answers import Answers
from ...wire.kernel_messages.compose import status
from ...wire.messages import Channel, Message, MessageError, lane_of
from ..kernel_settings import KernelSettings
from ..log.requests import ReceivedRequest
from .cell_texts import GREETING_TIMER, Greeting, GreetingText, WaitText
from .effects import ReplySent, ToKernel, Want
from .internal_requests import SkippedCounts, attributed, interruption, is_keepers_own
from .log import Log
from .reattach import Reattach
from .waiting import Reason, RelayState, Waiting, WaitingRequest

_DEAD = "DeadKernelError"


class Relay:
    """`handle_request` and `handle_kernel_message` pass messages on; `kernel_…` methods report the process's life."""

    def __init__(self, log: Log, settings: KernelSettings, node: str) -> None:
        self.answers = Answers(log.runtime)
        self.waiting = Waiting()
        self.reattach = Reattach(log)
        self.greeting_text = GreetingText(settings, node, self.reattach)
        self.greeting = Greeting(log)
        self.wait_text = WaitText(log)
        self._skipped_counts = SkippedCounts(log, self.answers)
        self._log = log
        self._was_taken_over = False  # the kernel, from a killed keeper
        self._state = RelayState.DOWN
        self._end_reason = ""
        self._busy_with: Set[str] = set()  # keys of requests; a control request overlaps with a cell
        self._latest_header = b""  # of the latest execute_request of a front end
        self._has_gpus = False
        self._gpu_names: Sequence[str] = ()
        self._wanted = Want(None, None)

    def __repr__(self) -> str:
        return f"<Relay {self._state.value}, busy with {sorted(self._busy_with)}, {self.waiting!r}>"

    @property
    def busy(self) -> bool:
        """Whether the kernel is busy, or has pending cells."""
        return bool(self._busy_with) or self.waiting.is_executing

    @property
    def _is_up(self) -> bool:
        return self._state is RelayState.UP

    # -------------------------------------------------------------------------------------- the life of both ends

    def kernel_starting(self, taken_over: bool) -> None:
        """A process of the kernel is about to be started, or runs under a keeper that was killed."""
        if not taken_over:
            self._log.add("requests.kernel_started")
        self._state = RelayState.DOWN
        self._was_taken_over = taken_over
        self._busy_with.clear()
        self.waiting.may_pin = not taken_over
        self.waiting.knows_begun = self._log.found or not taken_over
        self.answers.clear()
        if taken_over:
            self._kernel_taken_over()

    def validate(self) -> None:
        """Raise AssertionError if something is not as it is whenever there is nothing to do."""
        self.waiting.validate()
        assert not (self._is_up and self.waiting.all(Reason.KERNEL)), f"the kernel is up: {self}"
        assert self._state is not RelayState.ENDED or not self.waiting.line, f"there is no kernel: {self}"
        first = self.waiting.first_cell
        assert (self._wanted.code or self._wanted.gpus) == (first and first.request), f"not wanted: {self}"

    def _kernel_taken_over(self) -> None:
        """The kernel may be busy with requests of a killed keeper: the log has those without a reply."""
        self.waiting.front_end_left(self._log.state.requests.orphaned)
        self.reattach.take_over()
        self.answers.count_from(self._log.state.requests.count)
        self.answers.reserved = self.answers.count
        for request in self._log.state.requests.pending.values():
            self._take_over(request)

    def _take_over(self, pending: ReceivedRequest) -> None:
        if pending.state == "busy":
            self.answers.assume_busy(pending.request, pending.count)
            if pending.forwarded:
                self._busy_with.add(pending.key)
        if not pending.forwarded:
            self.waiting.add(pending.request, Reason.KERNEL)
        elif pending.is_cell:
            self._latest_header = pending.request.parts[0]
            self.waiting.add(pending.request, Reason.REPLY).take_over(pending)

    def _send_again(self) -> None:
        """Send the kernel the requests that a killed keeper has sent, or was about to send. The kernel drops those that
        it has received."""
        self._skipped_counts.skip()  # the killed keeper may have sent the kernel none of this
        for pending in self._log.state.requests.pending.values():
            if pending.forwarded:
                self._log.effects.append(ToKernel(pending.request))

    def kernel_up(self, kernel_info: Dict[str, Any]) -> None:
        """The kernel takes requests: send it those that waited. `kernel_info`: the content of its kernel_info_reply."""
        self._state, self.answers.kernel_info = RelayState.UP, kernel_info
        if self._was_taken_over:
            self._send_again()
        for one in self.waiting.take(Reason.KERNEL):
            self.handle_request(one.request)

    def kernel_gone(self) -> None:
        """The process has ended, and the reason is not known yet: requests wait for `kernel_ended`."""
        self._state = RelayState.DOWN

    def kernel_ended(self, reason: str, for_good: bool) -> None:
        """End every pending cell with this error. `for_good`: no other process follows."""
        self._state = RelayState.DOWN
        self._send(self.greeting.end())
        self._fail(Reason.REPLY, _DEAD, reason)
        self.fail_cells(_DEAD, reason)
        self._fail(Reason.FORMER_CELLS, _DEAD, reason)
        if for_good:
            self._state, self._end_reason = RelayState.ENDED, reason
            self._fail(Reason.KERNEL, _DEAD, reason)

    def kernel_restarting(self) -> None:
        """Another process is to follow: it gets the requests from now on, and those that waited are refused."""
        self._state = RelayState.DOWN
        self._fail(Reason.KERNEL, _DEAD, "the kernel was restarted")

    def front_end_returned(self, others: Sequence[str], unread: AbstractSet[str], utc_offset: int) -> None:
        """Another front end attaches, which knows nothing of the requests so far: see `FrontEndReturned`."""
        self._log.leave(unread)
        self.waiting.front_end_left(self._log.state.requests.orphaned)
        for message in self.greeting.withdraw():
            self._log.add("keep", message)
        self.reattach.begin((one.key for one in self.waiting.line), utc_offset)
        self.greeting_text.front_end_returned(others)

    # -------------------------------------------------------------------------------------- from front ends

    def admit(self, request: Message) -> bool:
        """Return whether there is room for this request; if not, refuse it."""
        if request.channel is Channel.STDIN or self._log.state.requests.has_room:
            return True
        self._send(self.answers.refuse(request, "QueueFull", "too many requests are waiting for this kernel"))
        return False

    def handle_request(self, request: Message) -> None:
        """Handle a request that `log.requests.request_type` and `admit` accept."""
        msg_type = request.msg_type
        if msg_type == "interrupt_request" and not self._can_be_interrupted:
            self._interrupt_waiting(request)
        elif self._state is RelayState.ENDED or (not self._is_up and msg_type == "shutdown_request"):
            # The keeper ends a process that is not up.
            self._send(self.answers.refuse(request, _DEAD, self._end_reason))
        elif not self._is_up:
            self.waiting.add(request, Reason.KERNEL)
        elif msg_type == "execute_request":
            self._execute(request)
        elif msg_type == "kernel_info_request" and self.busy and request.channel is Channel.SHELL:
            # A new front end gives up on a busy kernel that does not answer this within a minute.
            self._send(self.answers.reply(request, self.answers.kernel_info))
            self._send_one(status(self._log.runtime, "busy"))
        else:
            self._forward(request, request.key)

    def _execute(self, request: Message) -> None:
        aborts = self._log.state.requests.aborts.should_abort(request)
        if aborts or self.waiting.is_behind_failure(request) or self.greeting.holds_failure(request.client):
            return self._send(self.answers.abort(request))
        cell = self.waiting.add(request, Reason.KERNEL)
        if self._place(cell) is Reason.FORMER_CELLS:
            self._greet(cell)
            if not cell.by_user and cell.key not in self.reattach.answered:
                self._send(self.answers.execute_later(request))
                self.reattach.answer(request)
        self._serve_first_cell()

    def _place(self, cell: WaitingRequest) -> Reason:
        """Send a cell to the kernel, unless it has to wait. Return what it waits for."""
        reason = self.waiting.admit(cell, self._has_gpus)
        if reason is Reason.REPLY:
            if cell.by_user:
                self._skipped_counts.skip()
            self._greet(cell)  # not while it waits for GPUs: what it shows meanwhile is cleared
            self._latest_header = cell.request.parts[0]
            self._forward(cell.request, cell.key)
        return reason

    def _forward(self, request: Message, key: str) -> None:
        self._log.add("requests.forward", key)
        self._log.effects.append(ToKernel(request))

    def _greet(self, cell: WaitingRequest) -> None:
        if cell.by_user and not self.reattach.is_orphaned(cell.key):
            words = self.greeting_text.take(self._gpu_names, self.wait_text.text)
            self._pass_to_hub(self.greeting.show(cell.request, words))

    # -------------------------------------------------------------------------------------- requests that wait

    def resume(self, reason: Reason) -> None:
        """Send the cells that have waited for this to the kernel, as far as they need not wait for something else."""
        cells = self.waiting.all(reason)
        if self._is_up and cells:
            for cell in cells:
                self._place(cell)
            self._serve_first_cell()

    def gpus_changed(self, ready: bool, names: Sequence[str], waiting_text: Optional[str]) -> None:
        """The kernel's GPUs have changed, or what is known of them: see `GpusChanged`."""
        self._has_gpus, self._gpu_names = ready, names
        if waiting_text is not None:
            self._send(self.wait_text.set_text(waiting_text))
        if ready:
            self._send(self.wait_text.clear())
            self.wait_text.text = ""
            self.resume(Reason.GPUS)

    def code_pinned(self, problem: str) -> None:
        """The code that a cell has named is pinned, unless there is a problem."""
        if problem:
            self.fail_cells("CodeError", problem, only_first=True)
        elif self._is_up:
            self.waiting.may_pin = False
            self.resume(Reason.CODE)

    def _serve_first_cell(self) -> None:
        """Show the first cell that waits for code or GPUs as busy, and see to it that it gets what it waits for."""
        first = self.waiting.first_cell
        if first is not None:
            self._send(self.answers.begin(first.request))
        reason, request = (None, None) if first is None else (first.reason, first.request)
        wanted = Want(request if reason is Reason.CODE else None, request if reason is Reason.GPUS else None)
        self._send(self.wait_text.move_to(wanted.gpus))
        if request is not None or wanted != self._wanted:
            self._wanted = wanted
            self._log.effects.append(wanted)

    def fail_cells(self, name: str, reason: str, only_first: bool = False) -> None:
        """End cells that wait for code or GPUs with this error: see `CellsFailed`."""
        while self._fail_first_cell(name, reason) and not only_first:
            pass
        self.resume(Reason.CODE)  # the next cell may name code
        self._serve_first_cell()

    def _fail_first_cell(self, name: str, reason: str) -> bool:
        """End the first cell, and abort those behind it if it stops others on error. Return whether there was one."""
        cells = self.waiting.take_first_cell()
        if cells:
            self._send(self.wait_text.clear())  # which would remove the error as well, if it came later
            self._send(self.answers.fail(cells[0].request, name, reason))
            for cell in cells[1:]:
                self._send(self.answers.abort(cell.request))
        return bool(cells)

    def _fail(self, waits_for: Reason, name: str, reason: str, *, only_cells: bool = False) -> None:
        """End every request that waits for this with an error; but a reply that is held is sent."""
        for one in self.waiting.take(waits_for, only_cells=only_cells):
            if one.reply is not None:
                self._send([one.reply, *self.answers.end(one.request)])
            elif one.is_idle:
                self._send(self.answers.fail(one.request, name, reason, is_idle=True))
            else:
                self._send(self.answers.refuse(one.request, name, reason))

    def interrupt(self) -> None:
        """Interrupt the cell that runs as soon as it does so, or end the first cell that waits for code or GPUs."""
        first, next_cell = self.waiting.first_cell, self.waiting.next_cell(self._busy_with)
        if self._can_be_interrupted:
            self._interrupt_kernel()
        elif first is not None:
            self.fail_cells("KeyboardInterrupt", first.reason.value, only_first=True)
        elif next_cell is not None:
            next_cell.is_interrupted = True
            self._log.add("requests.interrupt", next_cell.key)

    def _interrupt_kernel(self) -> None:
        self._log.effects.append(ToKernel(interruption(self._log.runtime)))

    def _cell_begins(self, key: str, has_input: bool) -> None:
        if self.waiting.begin(key, has_input):
            self._interrupt_kernel()

    def _interrupt_waiting(self, interrupt: Message) -> None:
        """Handle an interrupt while nothing runs that could be interrupted, or a cell waits for GPUs or the kernel."""
        self._send(self.answers.begin(interrupt))
        self.interrupt()
        self._fail(Reason.KERNEL, "KeyboardInterrupt", Reason.KERNEL.value, only_cells=True)
        self._send(self.answers.reply(interrupt, {"status": "ok"}))

    @property
    def _can_be_interrupted(self) -> bool:
        """Whether there is something to interrupt in the kernel. If it is idle, an interrupt that comes late, after an
        outage, could hit the next cell on its way through the kernel's sockets, or be ignored before that begins."""
        waits = self.waiting.first_cell or self.waiting.next_cell(self._busy_with)
        return (self._is_up or self._was_taken_over) and self.busy and waits is None

    # -------------------------------------------------------------------------------------- from the kernel

    def handle_kernel_message(self, message: Message) -> None:
        """Handle a message of the kernel, whose size is limited. One that is malformed is dropped."""
        try:
            message = attributed(message, self._latest_header)
            msg_type, parent = message.msg_type, message.parent_key
        except MessageError:
            return
        if self._was_taken_over and not is_keepers_own(message) and self._drop_repeated(message, parent):
            return
        is_news = self.answers.observe(message)
        if is_keepers_own(message):
            return self._skipped_counts.handle_reply(message)
        if msg_type == "iopub_welcome":
            return
        if msg_type == "execute_reply" and message.channel is Channel.SHELL:
            return self._send(self.waiting.handle_reply(message))
        if is_news:
            self._send_one(message)
        else:  # a successor must know that front ends have this status, as the kernel sends it again
            self._log.add("keep", message)
        if message.channel is Channel.IOPUB and msg_type == "status":
            self._handle_status(parent, message.content().get("execution_state"))
        elif message.channel is Channel.IOPUB and msg_type == "execute_input":
            self._cell_begins(parent, has_input=True)

    def _drop_repeated(self, message: Message, parent: str) -> bool:
        """Return whether the kernel repeats this message, which this keeper or a killed one has received."""
        replies = self.waiting.replies(parent) if message.channel is Channel.SHELL else []
        if message.msg_id in [reply.msg_id for reply in replies if reply is not None]:
            return True  # it is held, and not sent yet
        if None in replies:
            return False  # also if the log has a reply: the request was answered before the kernel ran it
        repeated = self._log.has_received(message, self._is_up)
        if repeated and not self._log.found:
            self._log.add("keep", message)
        return repeated

    def _handle_status(self, parent: str, state: object) -> None:
        (self._busy_with.add if state == "busy" else self._busy_with.discard)(parent)
        if state == "busy":
            self._cell_begins(parent, has_input=False)
        elif state == "idle":
            self._correct_idle(parent)
            self._send(self.waiting.handle_idle(parent))

    def _correct_idle(self, parent: str) -> None:
        """Send the kernel's real state after the idle status of this request: a front end takes every idle status for
        the kernel's, also that of a control request while a cell runs; and it may not get the idle of a busy status.
        """
        is_hidden = self.reattach.is_orphaned(parent) or parent in self.reattach.answered
        busy = bool(self._busy_with) or self.waiting.first_cell is not None
        busy = busy or (is_hidden and any(one.key != parent for one in self.waiting.all(Reason.REPLY)))
        if is_hidden or busy:
            self._send_one(status(self._log.runtime, "busy" if busy else "idle"))

    # -------------------------------------------------------------------------------------- to front ends

    def show_missed(self, parent: bytes, utc_offset: int) -> None:
        """Show the missed cells: see `MissedRequested`."""
        self._send(self.reattach.missed_output(parent, utc_offset))
        self._log.add("cells.missed_shown")

    def timer_due(self, name: str) -> None:
        """The time of a timer has come: see `TimerDue`."""
        self._send(self.greeting.end_when_read() if name == GREETING_TIMER else self.wait_text.become_due())

    def _send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._send_one(message)

    def _send_one(self, message: Message) -> None:
        """Send a message of the kernel, or in the kernel's name."""
        parent = message.parent_key
        if parent in self.reattach.answered or self.reattach.is_orphaned(parent):
            self._log.add("keep", message)
            self._sent(message)
        else:
            self._pass_to_hub(self.greeting.pass_on(message))

    def _pass_to_hub(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._log.send(lane_of(message, message.msg_type), message)
            self._sent(message)

    def _sent(self, message: Message) -> None:
        if message.channel is Channel.SHELL and message.msg_type == "execute_reply":
            self.resume(Reason.FORMER_CELLS)
            self._log.effects.append(ReplySent(message.parent_id))
