"""The placeholder for a kernel: answers front ends while no kernel can, without claiming what is not known.

It answers kernel_info requests with what the kernel itself has replied before, greets new subscribers of iopub, and
answers requests that the kernel will never answer. Of a kernel that has not been started, in which there are no
variables, it also knows the answers to some other requests.
"""

from __future__ import annotations

import json
from typing import Any

from ....wire.kernel_messages.answers import Answers
from ....wire.kernel_messages.compose import on_iopub, status
from ....wire.messages import Channel, Message, content_of, type_of
from ....wire.runtime import Runtime
from ....wire.texts import wrapped
from ...front_end.requests import has_reply, needs_owner, wants_restart
from .late_subscribers import LateSubscribers

_REPLACED = "the kernel was replaced by another one before this had ended"
_MAX_KERNEL_INFO = 64 * 1024
"""Bytes of a kernel_info_reply that is remembered."""
_STATES = ("starting", "restarting", "idle", "busy")
_MAX_BUSY = 1000
"""Requests being executed that are remembered; of more the oldest are forgotten."""
_KNOWN_ANSWERS: dict[str, dict[str, Any]] = {
    "history_request": {"status": "ok", "history": []},
    "comm_info_request": {"status": "ok", "comms": {}},
    "inspect_request": {"status": "ok", "found": False, "data": {}, "metadata": {}},
    "is_complete_request": {"status": "unknown"},
}


class Placeholder:
    """`observe` gets the kernel's messages. The methods return the messages that front ends get in the kernel's place.

    `is_idle`: front ends have received the idle status of a request, so that only its reply is missing.
    """

    def __init__(self, runtime: Runtime, kernel_info: bytes | None) -> None:
        """`kernel_info`: the reply of a similar kernel before."""
        self._runtime = runtime
        self.kernel_info = kernel_info
        """The content of the kernel_info_reply of this kernel, or of a similar one."""
        self._answers = Answers(runtime)
        self._late_subscribers = LateSubscribers(runtime)
        self.state = "starting"
        self.since = 0.0
        """Since when the kernel has this state, by its own messages, in seconds since 1970; 0: since the time that the
        keeper has reported."""
        self._reported_busy = False  # by a status without a request, which no idle follows by itself
        self._waits = False  # for GPUs, as the keeper has reported
        self._busy_with: dict[str, None] = {}  # keys of requests: while a cell runs, others come and go

    def __repr__(self) -> str:
        return f"<Placeholder {self.state} busy with {len(self._busy_with)}>"

    def newest_state(self, reported: str) -> str:
        """Return the kernel's state; `reported`: by the keeper. The kernel's own messages are newer."""
        return self.state if reported in ("idle", "busy") else reported

    def is_outdated(self, message: Message) -> bool:
        """Whether this is the “starting” of a kernel that the keeper has reported to be ready.

        ipykernel can answer requests on its control thread before its main thread publishes that status; no other one
        follows until a cell runs.
        """
        is_status = message.channel is Channel.IOPUB and b'"status"' in message.parts[0]
        return self.state == "idle" and is_status and message.content().get("execution_state") == "starting"

    def observe(self, message: Message) -> list[Message]:
        """Take note of a message of the kernel to a front end, which gets the returned messages before."""
        header, before = message.parts[0], []
        if message.channel is Channel.IOPUB and b'"status"' in header:
            before = self._observe_status(str(message.content().get("execution_state")), message.parent_key)
            self._late_subscribers.observe(message)
        elif b'"kernel_info_reply"' in header and len(message.parts[3]) <= _MAX_KERNEL_INFO:
            message.content()  # MessageError: only JSON is remembered
            self.kernel_info = message.parts[3]
        if b'"status"' in header or b'"execute_' in header:
            self._answers.observe(message)
        return before

    def answer(self, request: Message, *, is_idle: bool = False) -> list[Message]:
        """Answer the request if it is a kernel_info_request whose reply is known; else return nothing."""
        if self.kernel_info is None or type_of(request) != "kernel_info_request":
            return []
        return self.reply(request, json.loads(self.kernel_info), is_idle=is_idle)

    def answer_unstarted(self, request: Message) -> list[Message]:
        """Answer the request if the answer is known for a kernel in which nothing was executed; else return nothing."""
        answer = known_answer(request)
        return self.answer(request) or ([] if answer is None else self.reply(request, answer))

    def fail(self, request: Message, reason: str, *, is_idle: bool = False) -> list[Message]:
        """Answer this request with an error, as there is no kernel any more that could answer it."""
        answer = self._answers.fail(request, "DeadKernelError", reason, is_idle=is_idle)
        self._late_subscribers.observe(*answer)
        return answer

    def refuse(self, request: Message, reason: str, *, is_idle: bool = False) -> list[Message]:
        """Answer a request to a kernel that could not be started with an error, but no kernel_info_request: to VS Code
        each answer means that the kernel is ready, and VS Code waits forever for replies to what it sends next."""
        is_info = type_of(request) == "kernel_info_request"
        return [] if is_info else self.fail(request, reason, is_idle=is_idle)

    def end_with_kernel(self, request: Message, *, is_idle: bool = False) -> list[Message]:
        """Answer a request that is not for the kernel that replaces its own: an interrupt, another request on the
        control channel, or a cell that was interrupted."""
        if type_of(request) == "interrupt_request":
            return self.acknowledge(request, is_idle=is_idle)
        name = "DeadKernelError" if request.channel is Channel.CONTROL else "KeyboardInterrupt"
        return self._answers.fail(request, name, _REPLACED, is_idle=is_idle)

    def deny(self, request: Message, reason: str, *, is_idle: bool = False) -> list[Message]:
        """Answer a request that the kernel does not get, as another front end owns it, or another computer has it."""
        if type_of(request) == "shutdown_request":  # the front end leaves, and the kernel goes on
            reply = {"status": "ok", "restart": wants_restart(request)}
            return self.reply(request, reply, is_idle=is_idle)
        known = self.answer(request, is_idle=is_idle)
        if known or not has_reply(request):
            return known
        name = "NotOwner" if needs_owner(request) else "DeadKernelError"
        return [*self._answers.fail(request, name, reason, is_idle=is_idle), *self._repeated_busy()]

    def reject(self, request: Message, reason: str, name: str = "QueueFull") -> list[Message]:
        """Answer a request that the kernel does not get, as the queue has no room, with the error `name`. A message
        without a reply is dropped, with a notice."""
        if has_reply(request):
            return [*self._answers.fail(request, name, reason), *self._repeated_busy()]
        content = {"name": "stderr", "text": wrapped(f"{type_of(request)} was dropped: {reason}\n")}
        return [on_iopub(self._runtime, "stream", content, request.parts[0])]

    def acknowledge(self, request: Message, *, is_idle: bool = False) -> list[Message]:
        """Answer an interrupt_request, or code that a front end runs by itself, whose effect comes later."""
        if request.channel is Channel.CONTROL:
            return self.reply(request, {"status": "ok"}, is_idle=is_idle)
        return [*self._answers.execute_later(request, is_idle=is_idle), *self._repeated_busy()]

    def reply(self, request: Message, content: dict[str, Any], *, is_idle: bool = False) -> list[Message]:
        """Answer a request with this content."""
        answer = self._answers.reply(request, content, is_idle=is_idle)
        self._late_subscribers.observe(*answer)
        return [*answer, *self._repeated_busy()]

    def end_cells(self, cells: list[Message], name: str, reason: str) -> list[Message]:
        """End these cells, which were not sent, with an error. If the first cell has `stop_on_error`, the others are
        aborted."""
        messages: list[Message] = []
        for cell in cells:
            if cell is not cells[0] and cells[0].content().get("stop_on_error", True):
                messages += self._answers.abort(cell)
            else:
                messages += self._answers.fail(cell, name, reason)
        return messages

    def show_text(self, cell: Message, text: str) -> list[Message]:
        """Show a text in the cell of this request."""
        content: dict[str, Any] = {"data": {"text/plain": wrapped(text)}, "metadata": {}, "transient": {}}
        return [on_iopub(self._runtime, "display_data", content, cell.parts[0])]

    def _observe_status(self, state: str, parent: str) -> list[Message]:
        if state not in _STATES:
            return []
        if state == "idle" and parent:
            self._busy_with.pop(parent, None)
        elif state != "busy":
            self._busy_with.clear()  # another process, or the keeper reports that the kernel does nothing
        elif parent:  # else the keeper reports it, and no idle for that will follow
            self._busy_with[parent] = None
            if len(self._busy_with) > _MAX_BUSY:
                del self._busy_with[next(iter(self._busy_with))]
        before, self.state = self.state, "busy" if self._busy_with else state
        if self.state != before:
            self.since = self._runtime.time()
        if not parent:
            self._reported_busy = state == "busy"
        elif self.state == "idle" and self._reported_busy:
            return self._status("idle")  # JupyterLab ignores the idle of a kernel_info_request
        return []

    def update_state(self, reported: str) -> list[Message]:
        """The keeper reports the kernel's state.

        Front ends have not yet received a message from a kernel that has just started.
        """
        waited, self._waits = self._waits, reported == "waiting"
        if self._waits:
            return []
        if waited and reported == "idle" and self._busy_with:
            self.since = self._runtime.time()
            return []  # its cells go to the kernel now; their busy status was sent while they waited
        if reported in ("starting", "idle"):
            self._busy_with.clear()  # front ends may have missed the end of a request while they were away
        if reported == self.state or "starting" in (reported, self.state):
            self.since = 0.0
        if reported != self.state and (reported == "starting" or self.state == "starting"):
            self.state = reported
            return self._status(reported)
        if reported == "idle":  # the kernel's own message follows, behind the output
            self.state = reported
        return []

    def show_state(self, state: str) -> list[Message]:
        """Show this state, busy or idle, of a kernel that does not exist: waiting cells make it busy."""
        self._busy_with.clear()
        before, self.state = self.state, state
        return self._status(state) if state != before else []

    def kernel_gone(self) -> None:
        """No kernel executes the requests so far: it is lost, or front ends have another one."""
        self._busy_with.clear()

    def greet_subscriber(self) -> list[Message]:
        """Send a new subscriber the welcome message that newer protocols require, what the subscriber may have missed
        just now, and the kernel's state."""
        welcome = on_iopub(self._runtime, "iopub_welcome", {"subscription": ""})
        return [welcome, *self._late_subscribers.repeated_idles(), *self._status(self.state)]

    def _repeated_busy(self) -> list[Message]:
        """Repeat that the kernel is busy with another request: the idle status after a reply would hide that."""
        return self._status("busy") if self.state == "busy" else []

    def _status(self, state: str) -> list[Message]:
        self._reported_busy = state == "busy"
        return [status(self._runtime, state)]


def known_answer(request: Message) -> dict[str, Any] | None:
    """Return the content of the reply of a kernel in which nothing was executed; None if only the kernel knows it."""
    if type_of(request) == "kernel_info_request":
        return plain_kernel_info()
    if request.channel is not Channel.SHELL:
        return None
    if type_of(request) == "complete_request":
        at = content_of(request).get("cursor_pos")
        at = at if isinstance(at, int) else 0
        return {"status": "ok", "matches": [], "cursor_start": at, "cursor_end": at, "metadata": {}}
    return _KNOWN_ANSWERS.get(type_of(request))


def plain_kernel_info() -> dict[str, Any]:
    """Return the reply of an IPython kernel of which nothing else is known yet."""
    mode = {"name": "ipython", "version": 3}
    language = {
        "name": "python",
        "version": "3",
        "mimetype": "text/x-python",
        "codemirror_mode": mode,
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    }
    return {
        "status": "ok",
        "protocol_version": "5.3",
        "implementation": "ipython",
        "implementation_version": "",
        "language_info": language,
        "banner": "The kernel starts with the first cell.",
        "help_links": [],
        "debugger": False,
        "supported_features": [],
    }
