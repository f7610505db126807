"""The requests that the kernel has: cells that are pending or must be aborted, and the keeper's own requests.

Requests that wait, here or in the kernel's own queue, have a limit.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Dict, Iterable, List, Optional, Set

from ...wire.answers import Answers
from ...wire.compose import Parts, error_reply, make
from ...wire.fields import text
from ...wire.messages import MAX_PARTS, Channel, Message, MessageError, content_of, keeper_message
from ...wire.runtime import Runtime
from ..takeover import SESSION

FEATURE = "failure_seen"
"""The feature, in a hub's HELLO, of reporting which failures the front end has seen."""
MAX_WAITING = 256 * 1024 * 1024
"""The size of all requests that wait, in bytes. A single request may be larger if no other one waits."""
MAX_REQUESTS = 100_000
"""The number of requests that wait."""
CLIENT = 0
"""The client number of the keeper itself."""
_NOTICE = "gpu_kernel_notice"
"""The type of the control request by which the kernel shows a text."""
_CHANNELS = (Channel.SHELL, Channel.CONTROL, Channel.STDIN)
_MAX_ID = 256
"""Characters of a message's id or type."""
ToKernel = Callable[[Channel, int, Parts], None]
OnReply = Callable[[Dict[str, Any]], None]


def request_type(message: Message) -> str:
    """Return a request's type. Raise FieldError or MessageError if no kernel could take the message as a request."""
    if message.channel not in _CHANNELS or not 4 <= len(message.parts) <= MAX_PARTS:
        raise MessageError(f"a request of {len(message.parts)} parts for {message.channel.name}")
    header = message.header()
    text(header, "msg_id", most=_MAX_ID, least=1)
    message.parent(), message.metadata(), message.content()
    return text(header, "msg_type", most=_MAX_ID)


def is_misattributed(message: Message) -> bool:
    """Return whether this is output whose parent is an internal request.

    In some ipykernels, the latest request is the parent of what a user's thread prints. If that is an internal request,
    of which front ends know nothing, the output belongs to the latest request of a front end.
    """
    if message.channel is not Channel.IOPUB or message.msg_type in ("status", "execute_input"):
        return False
    return message.parent().get("session") == SESSION


class Executions:
    """The pending cells: those that the kernel runs or has in its queue.

    A reply and the output before it come from the kernel on different sockets. A reply is held until the cell's idle
    status has come, so that it never overtakes the cell's output: nbclient drops output that comes later.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._pending: Dict[str, Message] = {}
        self._held: Dict[str, Message] = {}
        self._idle: Set[str] = set()
        self._expected: Set[str] = set()  # msg_ids of cells of a killed keeper whose idle status is to come

    def pending(self) -> List[Message]:
        """Return the cells that have no reply yet."""
        return list(self._pending.values())

    def pending_ids(self) -> List[str]:
        """Return the msg_ids of the cells that have no reply yet."""
        return list(self._pending)

    def add(self, request: Message) -> None:
        """An execute_request was sent to the kernel."""
        self._pending[request.msg_id] = request.unparsed()

    def remove(self, request: Message) -> None:
        """An execute_request did not reach the kernel, or its reply is lost."""
        self._pending.pop(request.msg_id, None)
        self._idle.discard(request.msg_id)

    def expect_idle(self, msg_id: str) -> None:
        """The reply to this cell, which a killed keeper sent to the kernel, has come before its idle status."""
        self._expected.add(msg_id)

    def handle_reply(self, reply: Message) -> List[Message]:
        """Take an execute_reply of the kernel; return the replies that may be sent now."""
        parent = reply.parent_id
        known = self._pending.pop(parent, None) is not None or parent in self._expected
        self._expected.discard(parent)
        if parent in self._idle or not known:
            self._idle.discard(parent)
            return [reply]
        self._held[parent] = reply
        return []

    def handle_idle(self, parent: str) -> List[Message]:
        """The kernel is idle again after the request `parent`; return the replies that may be sent now."""
        if parent in self._pending:
            self._idle.add(parent)
            return []
        held = self._held.pop(parent, None)
        return [] if held is None else [held]

    def held(self) -> List[Message]:
        """Return the replies that wait for an idle status."""
        return list(self._held.values())

    def take_held(self) -> List[Message]:
        """The kernel has ended: return the held replies, whose idle status will not come."""
        held = self.held()
        self._held.clear()
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


class Aborts:
    """Stop on error: a cell that was sent before its front end knew of an earlier cell's failure does not run.

    The kernel aborts what is in its queue when a cell fails. For cells that are still on their way, the hub reports
    when it has passed the reply of the failed cell on to the front end: what arrives before was sent before.
    """

    def __init__(self) -> None:
        self._stop_on_error: Dict[str, int] = {}  # msg_id: client, of cells without a reply
        self._interrupted: Dict[str, None] = {}  # msg_ids of cells that must not run if they arrive
        self._failed: Dict[int, str] = {}  # client: msg_id of its last failed cell that it has not seen

    def add(self, request: Message) -> None:
        """An execute_request is to run."""
        content = request.content()
        if content.get("stop_on_error", True) and not content.get("silent", False):
            self._stop_on_error[request.msg_id] = request.client

    def handle_reply(self, reply: Message) -> None:
        """An execute_reply is sent."""
        client = self._stop_on_error.pop(reply.parent_id, None)
        if client is not None and b'"error"' in reply.parts[3] and content_of(reply).get("status") == "error":
            self._failed[client] = reply.parent_id

    def failure_seen(self, msg_id: str) -> None:
        """The front end has the reply of this cell."""
        self._failed = {client: failed for client, failed in self._failed.items() if failed != msg_id}

    def cancel(self, msg_ids: Iterable[str]) -> None:
        """Those of these cells that are still on their way must not run: the user has interrupted them."""
        self._interrupted.update(dict.fromkeys(msg_ids))
        while len(self._interrupted) > MAX_REQUESTS:
            del self._interrupted[next(iter(self._interrupted))]

    def should_abort(self, request: Message) -> bool:
        """Return whether this execute_request was sent without knowing that an earlier cell had failed, or before an
        interrupt that overtook the request."""
        return request.client in self._failed or request.msg_id in self._interrupted

    def unseen_failures(self) -> Optional[Message]:
        """Return the event for a hub that attaches: when it has passed on all that it lacks, the front end has seen
        these replies. None if there is nothing to report."""
        return keeper_message(event="mark", replies=list(self._failed.values())) if self._failed else None

    def clear(self) -> None:
        """Forget the failures: the front end is another one, or its hub does not report what it has seen."""
        self._failed.clear()
        self._stop_on_error.clear()


class QueueLimit:
    """The requests that wait, in the keeper or in the kernel's own queue, until a status of the kernel names them."""

    def __init__(self) -> None:
        self._size = 0
        self._waiting: OrderedDict[str, int] = OrderedDict()

    def admit(self, request: Message) -> bool:
        """Count a request as waiting; return False if there is no room for it."""
        if request.channel is Channel.STDIN:  # the kernel publishes no status for an input_reply
            return True
        size = sum(map(len, request.parts))
        if self._waiting and (self._size + size > MAX_WAITING or len(self._waiting) >= MAX_REQUESTS):
            return False
        self._size += size - self._waiting.pop(request.msg_id, 0)
        self._waiting[request.msg_id] = size
        return True

    def release(self, msg_id: str) -> None:
        """The kernel has begun this request, or it was answered in the kernel's place."""
        self._size -= self._waiting.pop(msg_id, 0)

    def clear(self) -> None:
        """Forget all requests: the kernel's process is another one."""
        self._waiting.clear()
        self._size = 0


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
