"""The requests that the kernel has: cells that are pending, and the keeper's own requests, such as to skip a count."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Set

from ...wire.kernel_messages.answers import Answers
from ...wire.kernel_messages.compose import Parts, error_reply, make
from ...wire.messages import Channel, Message
from ...wire.runtime import Runtime
from ..kernel_protocol import SESSION

CLIENT = 0
"""The client number of the keeper itself."""
_NOTICE = "gpu_kernel_notice"
"""The type of the control request by which the kernel shows a text."""
ToKernel = Callable[[Channel, int, Parts], None]
OnReply = Callable[[Dict[str, Any]], None]


def is_misattributed(message: Message) -> bool:
    """Return whether this is output whose parent is an internal request.

    In some ipykernels, the latest request is the parent of what a user's thread prints. If that is an internal request,
    of which front ends know nothing, the output belongs to the latest request of a front end.
    """
    return _is_output(message) and message.parent().get("session") == SESSION


def is_keepers_own(message: Message) -> bool:
    """Return whether this message is about an internal request. Output may be of a user's thread, see above."""
    return not _is_output(message) and message.parent().get("session") == SESSION


def _is_output(message: Message) -> bool:
    return message.channel is Channel.IOPUB and message.msg_type not in ("status", "execute_input")


class Executions:
    """The pending cells: those that the kernel runs or has in its queue.

    A reply and the output before it come from the kernel on different sockets. A reply is held until the cell's idle
    status has come, so that it never overtakes the cell's output: nbclient drops output that comes later.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._pending: Dict[str, Message] = {}
        self.held: Dict[str, Message] = {}
        """The replies that wait for an idle status, by the msg_id of their cells."""
        self._idle: Set[str] = set()

    def pending(self) -> List[Message]:
        """Return the cells that have no reply yet."""
        return list(self._pending.values())

    def pending_ids(self) -> List[str]:
        """Return the msg_ids of the cells that have no reply yet."""
        return list(self._pending)

    def add(self, request: Message) -> None:
        """An execute_request was sent to the kernel."""
        self._pending[request.msg_id] = request.unparsed()

    def handle_reply(self, reply: Message) -> List[Message]:
        """Take an execute_reply of the kernel; return the replies that may be sent now."""
        parent = reply.parent_id
        known = self._pending.pop(parent, None) is not None
        if parent in self._idle or not known:
            self._idle.discard(parent)
            return [reply]
        self.held[parent] = reply
        return []

    def handle_idle(self, parent: str) -> List[Message]:
        """The kernel is idle again after the request `parent`; return the replies that may be sent now."""
        if parent in self._pending:
            self._idle.add(parent)
            return []
        held = self.held.pop(parent, None)
        return [] if held is None else [held]

    def take_held(self) -> List[Message]:
        """The kernel has ended: return the held replies, whose idle status will not come."""
        held, self.held = list(self.held.values()), {}
        return held

    def fail_all(self, reason: str) -> None:
        """End every pending cell with an error."""
        for request in self.pending():
            self.fail(request, reason)
        self._idle.clear()

    def refuse(self, request: Message, reason: str, name: str = "DeadKernelError") -> None:
        """Answer a request that no kernel will get. One that needs no answer gets none."""
        msg_type = request.msg_type
        if msg_type == "shutdown_request":
            restart = bool(request.content().get("restart"))
            self._answers.reply(request, {"status": "ok", "restart": restart})
        elif msg_type.endswith("_request") and msg_type != "kernel_info_request":  # nothing is known to reply
            self.fail(request, reason, name)

    def fail(self, request: Message, reason: str, name: str = "DeadKernelError") -> None:
        """End this request with an error, whether the kernel has it or not."""
        self._pending.pop(request.msg_id, None)
        if request.msg_id in self._idle:  # only the reply is missing
            self._answers.reply_only(request, error_reply(name, reason, self._answers.count))
        else:
            self._answers.fail(request, name, reason)


class _Internal:
    """A request of the keeper itself, and what has come of its reply and its idle status."""

    def __init__(self, on_reply: Optional[OnReply], after_idle: bool) -> None:
        self.reply: Optional[Dict[str, Any]] = None
        self._on_reply = on_reply
        self._after_idle = after_idle
        self._idle = False

    @property
    def over(self) -> bool:
        """Whether nothing more has to come."""
        return self._idle and self._on_reply is None

    def take(self, message: Message) -> Optional[OnReply]:
        """Take a message about the request; return what has to be called with the reply now."""
        if message.channel is not Channel.IOPUB:
            self.reply = message.content()
        elif message.msg_type == "status" and message.content().get("execution_state") == "idle":
            self._idle = True
        if self.reply is None or (self._after_idle and not self._idle):
            return None
        on_reply, self._on_reply = self._on_reply, None
        return on_reply


class InternalRequests:
    """`send` or `evaluate` sends a request; `handle` takes the kernel's messages about it."""

    def __init__(self, runtime: Runtime, to_kernel: ToKernel) -> None:
        self._runtime = runtime
        self._to_kernel = to_kernel
        self._pending: Dict[str, _Internal] = {}

    def send(
        self,
        channel: Channel,
        msg_type: str,
        content: Dict[str, Any],
        on_reply: Optional[OnReply] = None,
        *,
        after_idle: bool = False,
    ) -> None:
        """Send a request; `on_reply` gets the content of its reply.

        after_idle: Only when its idle status has come as well, and with it all that the kernel published before.
        """
        parts = make(self._runtime, msg_type, content, session=SESSION)
        request = Message(channel, CLIENT, parts)
        self._pending[request.msg_id] = _Internal(on_reply, after_idle)
        self._to_kernel(channel, CLIENT, request.parts)

    def evaluate(self, expression: str, on_result: OnReply, *, after_idle: bool = False) -> None:
        """Evaluate an expression in the kernel.

        `on_result` gets {"status", "data" or "evalue"}, or {} if it was aborted. `after_idle` as for `send`.
        """
        content: Dict[str, Any] = {"code": "", "silent": True, "store_history": False, "allow_stdin": False}
        content.update(stop_on_error=False, user_expressions={"value": expression})

        def on_reply(content: Dict[str, Any]) -> None:
            on_result(content.get("user_expressions", {}).get("value", {}))

        self.send(Channel.SHELL, "execute_request", content, on_reply, after_idle=after_idle)

    def show_notice(self, line: str, hooks: bool, signal: str = "") -> None:
        """Show a text in the running cell, or in the next one. `hooks`: run the functions of `gpu_kernel.on_sigterm`,
        too; `signal`: because of this signal."""
        self.send(Channel.CONTROL, _NOTICE, {"text": line, "hooks": hooks, "signal": signal})

    def handle(self, message: Message) -> bool:
        """Handle a message of the kernel; return False if it belongs to no request of the keeper itself."""
        parent = message.parent_id
        request = self._pending.get(parent)
        if request is None:
            return False
        on_reply = request.take(message)
        if request.over:
            del self._pending[parent]
        if on_reply is not None and request.reply is not None:
            on_reply(request.reply)
        return True

    def clear(self) -> None:
        """Forget all requests: the kernel's process is another one."""
        self._pending.clear()


class ReservedCount:
    """The execution count of the last cell that was answered in the kernel's place, until the kernel knows it: no other
    cell must get this count."""

    def __init__(self, internal_requests: InternalRequests) -> None:
        self._internal_requests = internal_requests
        self._count = 0

    def reserve(self, count: int) -> None:
        """A cell was answered with this count. 0: no count is reserved."""
        self._count = count

    def skip(self) -> None:
        """A cell is about to be sent to the kernel: make the kernel skip the count."""
        reserved = self._count
        if not reserved:
            return

        def on_result(result: Dict[str, Any]) -> None:
            if result and self._count == reserved:  # else it was aborted behind a cell that failed
                self._count = 0

        self._internal_requests.evaluate("__import__('gpu_kernel').skip(%d)" % reserved, on_result)
