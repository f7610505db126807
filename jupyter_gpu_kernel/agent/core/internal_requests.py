"""The keeper's own requests to the kernel, of which front ends know nothing: such as to skip a count."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ...wire.kernel_messages.answers import Answers
from ...wire.kernel_messages.compose import make
from ...wire.messages import Channel, Message, MessageError
from ...wire.runtime import Runtime
from ..kernel_protocol import SESSION
from .effects import ToKernel
from .log import Log

Evaluate = Callable[[Callable[[], str], Callable[[Dict[str, Any]], None]], None]
"""Evaluate(expression, on_result): evaluate expression() in the kernel; on_result({"status", "data" or "evalue"})."""
_CLIENT = 0
"""The client number of the keeper itself."""


def keeper_request(runtime: Runtime, channel: Channel, msg_type: str, content: Dict[str, Any]) -> Message:
    """Return a request of the keeper itself."""
    return Message(channel, _CLIENT, make(runtime, msg_type, content, session=SESSION))


def evaluation(runtime: Runtime, expression: str) -> Message:
    """Return the request to evaluate an expression in the kernel: see `result_of` its reply."""
    content: Dict[str, Any] = {"code": "", "silent": True, "store_history": False, "allow_stdin": False}
    content.update(stop_on_error=False, user_expressions={"value": expression})
    return keeper_request(runtime, Channel.SHELL, "execute_request", content)


def result_of(reply: Dict[str, Any]) -> Dict[str, Any]:
    """Return the result of an `evaluation`: {"status", "data" or "evalue"}, or {} if it was aborted."""
    result: Dict[str, Any] = reply.get("user_expressions", {}).get("value", {})
    return result


def interruption(runtime: Runtime) -> Message:
    """Return the request to interrupt what the kernel runs."""
    return keeper_request(runtime, Channel.CONTROL, "interrupt_request", {})


def attributed(message: Message, latest: bytes) -> Message:
    """Return the message. If it is output whose parent is an internal request, the returned message has another parent,
    `latest`: the header of the latest request of a front end. Raises MessageError if there is none.

    In some ipykernels, the latest request is the parent of what a user's thread prints. If that is an internal request,
    of which front ends know nothing, the output belongs to the latest request of a front end.
    """
    if not _is_output(message) or message.parent().get("session") != SESSION:
        return message
    if not latest:
        raise MessageError("output before the first cell")
    return message.replace(parts=(message.parts[0], latest, *message.parts[2:]))


def is_keepers_own(message: Message) -> bool:
    """Return whether this message is about an internal request. Output may be of a user's thread, see above."""
    return not _is_output(message) and message.parent().get("session") == SESSION


def _is_output(message: Message) -> bool:
    return message.channel is Channel.IOPUB and message.msg_type not in ("status", "execute_input")


class SkippedCounts:
    """Tells the kernel of execution counts that it must skip: `Answers.reserved`."""

    def __init__(self, log: Log, answers: Answers) -> None:
        self._log = log
        self._answers = answers
        self._asked: Dict[str, int] = {}  # by the msg_ids of the requests to skip a count

    def skip(self) -> None:
        """A cell is about to be sent to the kernel: make the kernel skip the count."""
        if self._answers.reserved:
            code = "__import__('gpu_kernel').skip(%d)" % self._answers.reserved
            request = evaluation(self._log.runtime, code)
            self._asked[request.msg_id] = self._answers.reserved
            self._log.effects.append(ToKernel(request))

    def handle_reply(self, message: Message) -> None:
        """Handle a message about an internal request, which may be the reply to that of `skip`."""
        asked = self._asked.pop(message.parent_id, 0) if message.channel is Channel.SHELL else 0
        if asked and asked == self._answers.reserved and result_of(message.content()):  # else it was aborted
            self._answers.reserved = 0
