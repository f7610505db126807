"""Answers to requests in the kernel's place: for each exactly one busy, one reply and one idle, as from the kernel.

A request may be known to be busy before it is answered here: it waited, or the kernel began it and ended. So both
kinds of status pass through `Answers`. A cell that ends here also gets its input and a number, as cells in a
kernel do. This file knows no sockets.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from .compose import aborted_reply, error_content, error_reply, is_user_cell
from .messages import Channel, Message

MOST = 1000
"""Requests at work whose state is known; of more the oldest are forgotten."""
Say = Callable[[Channel, int, str, Dict[str, Any], bytes], None]
"""say(channel, client, msg_type, content, parent header): a message in the kernel's name."""


class Answers:
    """`saw` gets what the kernel says; `begin`, then `reply`, `fail` or `abort` answer a request in its place."""

    def __init__(self, say: Say, numbered: Callable[[int], object] = lambda number: None) -> None:
        """`numbered(n)` is called when a cell that the kernel never runs gets the number n."""
        self.count = 0
        """The number of the last cell."""
        self._say = say
        self._numbered = numbered
        self._busy: Dict[
            str, Optional[int]
        ] = {}  # msg_ids of requests, and the number of a cell that has one

    def forget(self) -> None:
        """The kernel is another one now."""
        self.count = 0
        self._busy.clear()

    def saw(self, message: Message) -> bool:
        """Whether this message of the kernel is news to front ends: not if its busy was said here."""
        msg_type, parent = message.msg_type, message.parent_id
        if msg_type == "status":
            return self._saw_status(parent, message.content().get("execution_state"))
        if msg_type in ("execute_input", "execute_reply"):
            count = message.content().get("execution_count")
            if msg_type == "execute_reply" and isinstance(count, int):
                self.count = max(self.count, count)
            elif parent in self._busy and isinstance(count, int):
                self._busy[parent] = count
        return True

    def _saw_status(self, parent: str, state: Any) -> bool:
        if state == "idle":
            self._busy.pop(parent, None)
        elif state == "busy" and parent in self._busy:
            return False
        elif state == "busy" and parent:
            self._busy[parent] = None
            if len(self._busy) > MOST:
                del self._busy[next(iter(self._busy))]
        return True

    def is_busy(self, request: Message) -> bool:
        """Whether front ends have heard that the kernel is busy with this request, and no idle after it."""
        return _id(request) in self._busy

    def was_busy(self, request: Message) -> None:
        """Front ends have heard so from a predecessor of this process, and a cell's input with it."""
        self._busy.setdefault(_id(request), self.count)

    def begin(self, request: Message) -> None:
        """The kernel counts as busy with this request."""
        if not self.is_busy(request):
            self._busy[_id(request)] = None
            self._say(Channel.IOPUB, 0, "status", {"execution_state": "busy"}, request.parts[0])

    def reply(self, request: Message, content: Dict[str, Any]) -> None:
        """The request is answered with this content."""
        self.begin(request)
        self.reply_only(request, content)
        self.end(request)

    def end(self, request: Message) -> None:
        """The kernel counts as idle again, if it was busy with this request."""
        self._end(_id(request), request.parts[0])

    def end_of(self, reply: Message) -> None:
        """The same after a reply of the kernel, whose idle will not come."""
        self._end(str(reply.parent().get("msg_id")), reply.parts[1])

    def _end(self, msg_id: str, header: bytes) -> None:
        if msg_id in self._busy:
            del self._busy[msg_id]
            self._say(Channel.IOPUB, 0, "status", {"execution_state": "idle"}, header)

    def reply_only(self, request: Message, content: Dict[str, Any]) -> None:
        """The reply to a request whose idle was said already."""
        msg_type = str(request.header().get("msg_type")).replace("_request", "_reply")
        self._say(request.channel, request.client, msg_type, content, request.parts[0])

    def abort(self, request: Message) -> None:
        """A cell does not run because one before it failed."""
        self.reply(request, aborted_reply())

    def fail(self, request: Message, name: str, reason: str) -> None:
        """The request ends with an error, which a cell shows."""
        self.begin(request)
        content = dict(error_content(name, reason), status="error")
        if request.header().get("msg_type") == "execute_request":
            content = error_reply(name, reason, self._input(request))
            self._say(Channel.IOPUB, 0, "error", error_content(name, reason), request.parts[0])
        self.reply(request, content)

    def _input(self, request: Message) -> int:
        """The number of a cell that ends here. Its input is shown unless the kernel has shown it."""
        number, content = self._busy[_id(request)], request.content()
        if number is None and not content.get("silent"):
            number = self.count + 1
            said = {"code": content.get("code", ""), "execution_count": number}
            self._say(Channel.IOPUB, 0, "execute_input", said, request.parts[0])
            if is_user_cell(content):
                self._numbered(number)
        if number is not None and is_user_cell(content):
            self.count = max(self.count, number)
        return self.count


def _id(request: Message) -> str:
    return str(request.header().get("msg_id"))
