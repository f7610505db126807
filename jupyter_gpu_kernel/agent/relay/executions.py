"""The cells that the kernel is running or has before it: which are unanswered, and when an answer may leave.

A reply and the output before it come from the kernel on different sockets. A reply is held until the
cell's idle came, so that it never overtakes its own output (nbclient drops what comes late). No sockets
here.
"""

from __future__ import annotations

from typing import Dict, List, Set

from ...wire.answers import Answers
from ...wire.compose import error_reply
from ...wire.messages import Message


class Executions:
    """`sent`, `replied`, `went_idle` return what may go out now; `fail` answers in the kernel's place."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._open: Dict[str, Message] = {}
        self._held: Dict[str, Message] = {}
        self._idle: Set[str] = set()

    def open(self) -> List[Message]:
        """The cells that are not answered yet."""
        return list(self._open.values())

    def open_ids(self) -> List[str]:
        """Their msg_ids."""
        return list(self._open)

    def sent(self, message: Message) -> None:
        """An execute_request went to the kernel."""
        self._open[_id(message)] = message.unparsed()

    def forget(self, message: Message) -> None:
        """It did not come to the kernel."""
        self._open.pop(_id(message), None)

    def replied(self, reply: Message) -> List[Message]:
        """The kernel has sent this execute_reply."""
        parent = reply.parent_id
        known = self._open.pop(parent, None) is not None
        if parent in self._idle or not known:
            self._idle.discard(parent)
            return [reply]
        self._held[parent] = reply
        return []

    def went_idle(self, parent: str) -> List[Message]:
        """The kernel is idle again after `parent`."""
        if parent in self._open:
            self._idle.add(parent)
            return []
        held = self._held.pop(parent, None)
        return [] if held is None else [held]

    def end(self) -> List[Message]:
        """The kernel is gone: the held replies, whose idle will not come. Then `fail_all`."""
        held = list(self._held.values())
        self._held.clear()
        return held

    def fail_all(self, reason: str) -> None:
        """Every cell that the kernel left unanswered ends with an error."""
        for message in list(self._open.values()):
            self.fail(message, reason)
        self._idle.clear()

    def refuse(self, message: Message, reason: str, name: str = "DeadKernelError") -> None:
        """An answer for a request that no kernel will hear; to what needs none there is none."""
        msg_type = str(message.header().get("msg_type"))
        if msg_type == "shutdown_request":
            restart = bool(message.content().get("restart"))
            self._answers.reply(message, {"status": "ok", "restart": restart})
        elif msg_type.endswith("_request") and msg_type != "kernel_info_request":  # who is there is not known
            self.fail(message, reason, name)

    def fail(self, message: Message, reason: str, name: str = "DeadKernelError") -> None:
        """This request ends with an error, whether the kernel ever saw it or not."""
        self._open.pop(_id(message), None)
        if _id(message) in self._idle:  # all is said but the reply
            self._answers.reply_only(message, error_reply(name, reason, self._answers.count))
        else:
            self._answers.fail(message, name, reason)


def _id(message: Message) -> str:
    return str(message.header().get("msg_id"))
