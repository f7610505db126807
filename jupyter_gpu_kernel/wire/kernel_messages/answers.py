"""Answers to requests in the kernel's place: exactly one busy, one reply and one idle for each, as from the kernel.

Front ends may have received the busy status of a request before the request is answered here: the request waited, or
the kernel began it and ended. Therefore `Answers` observes every status, those that it sends and those of the kernel. A
cell that ends here also gets its input and an execution count, as in a kernel. This module knows no sockets.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ..messages import Message, content_of
from ..runtime import Runtime
from .compose import aborted_reply, error_content, error_reply, is_user_cell, make, on_iopub, status

MAX_REQUESTS = 1000
"""The number of requests whose state is known. Beyond it, the oldest are forgotten."""


class Answers:
    """`observe` gets the kernel's messages. The methods that answer a request return the messages to front ends."""

    def __init__(self, runtime: Runtime) -> None:
        self.count = 0
        """The execution count of the last cell."""
        self.reserved = 0
        """The count of the last cell that ended here, until the kernel knows the count; 0: there is none."""
        self.kernel_info: Dict[str, Any] = {}
        """The content of the kernel's kernel_info_reply; {}: it has not been up."""
        self._runtime = runtime
        self._busy: Dict[str, Optional[int]] = {}  # by the keys of requests: the count of a cell that has one

    def count_from(self, count: int) -> None:
        """Front ends know of a cell with this execution count."""
        self.count = max(self.count, count)

    def clear(self) -> None:
        """Forget everything: the kernel's process is another one."""
        self.count = self.reserved = 0
        self._busy.clear()

    # -------------------------------------------------------------------------------------- what the kernel says

    def observe(self, message: Message) -> bool:
        """Take note of a message of the kernel; return False for a busy status that was sent here before."""
        if message.msg_type == "status":
            return self._observe_status(message.parent_key, message.content().get("execution_state"))
        if message.msg_type in ("execute_input", "execute_reply"):
            count = message.content().get("execution_count")
            if message.msg_type == "execute_reply" and isinstance(count, int):
                self.count_from(count)
            elif message.parent_key in self._busy and isinstance(count, int):
                self._busy[message.parent_key] = count
        return True

    def _observe_status(self, parent: str, state: Any) -> bool:
        if state == "idle":
            self._busy.pop(parent, None)
        elif state == "busy" and parent in self._busy:
            return False
        elif state == "busy" and parent:
            self._busy[parent] = None
            if len(self._busy) > MAX_REQUESTS:
                del self._busy[next(iter(self._busy))]
        return True

    def assume_busy(self, request: Message, count: Optional[int]) -> None:
        """A predecessor of this process has sent front ends the busy status of this request, and its input if there is
        a count."""
        self._busy.setdefault(request.key, count)

    # -------------------------------------------------------------------------------------- answers

    def begin(self, request: Message) -> List[Message]:
        """Tell front ends that the kernel is busy with this request."""
        if request.key in self._busy:
            return []
        self._busy[request.key] = None
        return [status(self._runtime, "busy", request.parts[0])]

    def reply(self, request: Message, content: Dict[str, Any], *, is_idle: bool = False) -> List[Message]:
        """Answer the request with this content. `is_idle`: front ends have received the idle status of the request, so
        that only its reply is missing."""
        begin = [] if is_idle else self.begin(request)
        msg_type = request.msg_type.replace("_request", "_reply")
        parts = make(self._runtime, msg_type, content, request.parts[0])
        reply = Message(request.channel, request.client, parts)
        return [*begin, reply, *self.end(request)]

    def end(self, request: Message) -> List[Message]:
        """Tell front ends that the kernel is idle after this request, if they know it as busy with the request."""
        if request.key not in self._busy:
            return []
        del self._busy[request.key]
        return [status(self._runtime, "idle", request.parts[0])]

    def execute_later(self, request: Message, *, is_idle: bool = False) -> List[Message]:
        """Answer code of a front end's own, which the kernel executes later, with the number of the last cell."""
        reply = {"status": "ok", "execution_count": self.count, "user_expressions": {}, "payload": []}
        return self.reply(request, reply, is_idle=is_idle)

    def abort(self, request: Message) -> List[Message]:
        """Answer a cell that does not run because one before it failed."""
        return self.reply(request, aborted_reply())

    def fail(self, request: Message, name: str, reason: str, *, is_idle: bool = False) -> List[Message]:
        """Answer the request with an error, which a cell shows unless it `is_idle`: see `reply`."""
        content = dict(error_content(name, reason), status="error")
        shown: List[Message] = []
        if request.msg_type == "execute_request":
            if not is_idle:
                error = on_iopub(self._runtime, "error", error_content(name, reason), request.parts[0])
                shown = [*self.begin(request), *self._input(request), error]
            content = error_reply(name, reason, self.count)
        return [*shown, *self.reply(request, content, is_idle=is_idle)]

    def refuse(self, request: Message, name: str, reason: str) -> List[Message]:
        """Answer a request that no kernel will get. One that needs no answer gets none."""
        msg_type = request.msg_type
        if msg_type == "shutdown_request":
            restart = bool(request.content().get("restart"))
            return self.reply(request, {"status": "ok", "restart": restart})
        if msg_type == "kernel_info_request":
            return self.reply(request, self.kernel_info) if self.kernel_info else []
        return self.fail(request, name, reason) if msg_type.endswith("_request") else []

    def _input(self, request: Message) -> List[Message]:
        """Count a cell that ends here, and show its input, unless the kernel has done so."""
        count, content = self._busy[request.key], content_of(request)
        is_new = count is None and not content.get("silent")
        if is_new:
            count = self.count + 1
        if count is not None and is_user_cell(request):
            self.count_from(count)
            self.reserved = count if is_new else self.reserved
        cell_input = {"code": content.get("code", ""), "execution_count": count}
        return [on_iopub(self._runtime, "execute_input", cell_input, request.parts[0])] if is_new else []
