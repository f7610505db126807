"""The keeper's own requests to the kernel, with the functions that get their replies; and when the kernel is ready."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ...wire.messages import Channel, Message
from ..core.internal_requests import evaluation, keeper_request, result_of
from ..system.loop import Loop

RETRY_AFTER = 0.1
"""Seconds until an expression is sent again that was aborted, as a cell of the user had failed before it."""
_READY_INTERVAL = 0.1
"""Seconds between two requests to a kernel that is not ready yet."""
_NOTICE = "gpu_kernel_notice"
"""The type of the control request by which the kernel shows a text."""
OnReply = Callable[[Dict[str, Any]], None]


class _SentRequest:
    """A request that was sent, and what is known of its reply and its idle status."""

    def __init__(self, on_reply: OnReply, after_idle: bool) -> None:
        self.on_reply, self.after_idle = on_reply, after_idle
        self.reply: Optional[Dict[str, Any]] = None
        self.is_idle = False


class KernelRequests:
    """`send` or `evaluate` sends a request; `handle` takes the kernel's messages. `reset` for every process, and
    `begin` once its sockets are bound.

    up: Whether the kernel is ready. kernel_info: The content of its kernel_info_reply.
    """

    def __init__(self, loop: Loop, to_kernel: Callable[[Message], object], on_up: Callable[[], None]) -> None:
        """`on_up()` is called when the kernel is ready."""
        self._loop = loop
        self._to_kernel = to_kernel
        self._on_up = on_up
        self._process = 0
        self.reset()

    def reset(self) -> None:
        """Forget all requests: the process has ended, or another one is to be started."""
        self._pending: Dict[str, _SentRequest] = {}
        self._process += 1
        self.up = self._has_published = False
        self.kernel_info: Dict[str, Any] = {}

    def begin(self) -> None:
        """Ask until a reply and an iopub message have come: messages to a socket that is not yet connected are lost."""
        self._ask(self._process)

    def _ask(self, process: int) -> None:
        if not self.up and process == self._process:  # else that process has ended
            self.send(Channel.CONTROL, "kernel_info_request", {}, self._answered)
            self._loop.later(_READY_INTERVAL, lambda: self._ask(process))

    def _answered(self, info: Dict[str, Any]) -> None:
        self.kernel_info = info
        self._check()

    def _check(self) -> None:
        if not self.up and self.kernel_info and self._has_published:
            self.up = True
            self._on_up()

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
        self._send(keeper_request(self._loop.runtime, channel, msg_type, content), on_reply, after_idle)

    def evaluate(self, expression: Callable[[], str], on_result: OnReply = lambda result: None) -> None:
        """Evaluate an expression in the kernel, again after a while if it was aborted, because a cell failed before it.

        `expression()` returns the expression as it is to be evaluated now; `on_result` gets {"status", "data" or
        "evalue"}.
        """
        process = self._process

        def on_reply(reply: Dict[str, Any]) -> None:
            result = result_of(reply)
            if result:
                on_result(result)
            else:
                self._loop.later(RETRY_AFTER, retry)

        def retry() -> None:
            if process == self._process:
                self.evaluate(expression, on_result)

        self._send(evaluation(self._loop.runtime, expression()), on_reply)

    def show_notice(self, line: str, hooks: bool, signal: str = "") -> None:
        """Show a text in the running cell, or in the next one. `hooks`: run the functions of `gpu_kernel.on_sigterm`,
        too; `signal`: because of this signal."""
        self.send(Channel.CONTROL, _NOTICE, {"text": line, "hooks": hooks, "signal": signal})

    def handle(self, message: Message) -> None:
        """Handle a message of the kernel, which may be about one of the requests."""
        if message.channel is Channel.IOPUB and not self._has_published:
            self._has_published = True
            self._check()
        request = self._pending.get(message.parent_id)
        if request is None:
            return
        if message.channel is not Channel.IOPUB:
            request.reply = message.content()
        elif message.msg_type == "status" and message.content().get("execution_state") == "idle":
            request.is_idle = True
        if request.reply is not None and (request.is_idle or not request.after_idle):
            del self._pending[message.parent_id]
            request.on_reply(request.reply)

    def _send(self, request: Message, on_reply: Optional[OnReply], after_idle: bool = False) -> None:
        if on_reply is not None:
            self._pending[request.msg_id] = _SentRequest(on_reply, after_idle)
        self._to_kernel(request)
