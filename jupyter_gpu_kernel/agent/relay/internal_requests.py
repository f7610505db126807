"""The keeper's own requests to the kernel, of which front ends know nothing: such as to skip a count."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ...wire.kernel_messages.compose import Parts, make
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


class _Internal:
    """A request of the keeper itself, and what is known of its reply and its idle status."""

    def __init__(self, on_reply: Optional[OnReply], after_idle: bool) -> None:
        self.on_reply = on_reply
        self.after_idle = after_idle
        self.reply: Optional[Dict[str, Any]] = None
        self.is_idle = False


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

    def evaluate(self, expression: str, on_result: OnReply) -> None:
        """Evaluate an expression in the kernel.

        `on_result` gets {"status", "data" or "evalue"}, or {} if the request was aborted.
        """
        content: Dict[str, Any] = {"code": "", "silent": True, "store_history": False, "allow_stdin": False}
        content.update(stop_on_error=False, user_expressions={"value": expression})

        def on_reply(content: Dict[str, Any]) -> None:
            on_result(content.get("user_expressions", {}).get("value", {}))

        self.send(Channel.SHELL, "execute_request", content, on_reply)

    def show_notice(self, line: str, hooks: bool, signal: str = "") -> None:
        """Show a text in the running cell, or in the next one. `hooks`: run the functions of `gpu_kernel.on_sigterm`,
        too; `signal`: because of this signal."""
        self.send(Channel.CONTROL, _NOTICE, {"text": line, "hooks": hooks, "signal": signal})

    def handle(self, message: Message) -> bool:
        """Handle a message of the kernel; return False if it belongs to no request of the keeper itself."""
        request = self._pending.get(message.parent_id)
        if request is None:
            return False
        if message.channel is not Channel.IOPUB:
            request.reply = message.content()
        elif message.msg_type == "status" and message.content().get("execution_state") == "idle":
            request.is_idle = True
        if request.reply is not None and (request.is_idle or not request.after_idle):
            on_reply, request.on_reply = request.on_reply, None
            if on_reply is not None:
                on_reply(request.reply)
        if request.is_idle and request.on_reply is None:
            self._pending.pop(message.parent_id, None)
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
