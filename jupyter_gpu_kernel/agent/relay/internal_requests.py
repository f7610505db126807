"""The keeper's own requests to the kernel. Front ends see neither their replies nor their busy and idle status."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ...wire.compose import Parts, make
from ...wire.messages import Channel, Message
from ...wire.runtime import Runtime

CLIENT = 0
"""The client number of the keeper itself."""
SESSION = "keeper"
"""The session in the headers of these requests."""
ToKernel = Callable[[Channel, int, Parts], None]
OnReply = Callable[[Dict[str, Any]], None]


class InternalRequests:
    """`send` or `evaluate` sends a request; `handle` takes what the kernel says about it.

    `session` is the kernel's own, learnt from its replies.
    """

    def __init__(self, runtime: Runtime, to_kernel: ToKernel) -> None:
        self.session = ""
        self._runtime = runtime
        self._to_kernel = to_kernel
        self._pending: Dict[str, Optional[OnReply]] = {}

    def send(
        self, channel: Channel, msg_type: str, content: Dict[str, Any], on_reply: Optional[OnReply] = None
    ) -> None:
        """Send a request; `on_reply` gets the content of its reply."""
        parts = make(self._runtime, msg_type, content, session=SESSION)
        request = Message(channel, CLIENT, parts)
        self._pending[request.msg_id] = on_reply
        self._to_kernel(channel, CLIENT, request.parts)

    def evaluate(self, expression: str, on_result: OnReply) -> None:
        """Evaluate an expression in the kernel.

        `on_result` gets {"status", "data" or "evalue"}, or {} if it was aborted.
        """
        content: Dict[str, Any] = {"code": "", "silent": True, "store_history": False, "allow_stdin": False}
        content.update(stop_on_error=False, user_expressions={"value": expression})

        def on_reply(content: Dict[str, Any]) -> None:
            on_result(content.get("user_expressions", {}).get("value", {}))

        self.send(Channel.SHELL, "execute_request", content, on_reply)

    def handle(self, message: Message) -> bool:
        """Handle a message of the kernel; return False if it belongs to none of these requests."""
        parent = message.parent_id
        if parent not in self._pending:
            return False
        self.session = str(message.header().get("session", ""))
        if message.channel is Channel.IOPUB:
            idle = message.msg_type == "status" and message.content().get("execution_state") == "idle"
            if idle and self._pending[parent] is None:
                del self._pending[parent]
        else:
            on_reply, self._pending[parent] = self._pending[parent], None  # its idle status is still to come
            if on_reply is not None:
                on_reply(message.content())
        return True

    def clear(self) -> None:
        """Forget all requests: the kernel's process is another one."""
        self._pending.clear()
