"""The keeper's own requests to the kernel, of which front ends see nothing: neither replies nor busy and
idle."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ...wire.compose import Parts, make
from ...wire.messages import Channel, Message

CLIENT = 0
"""The client number of the keeper itself."""
OURS = "keeper"
"""The session that stands in our requests."""

Send = Callable[[Channel, int, Parts], None]
Answered = Callable[[Dict[str, Any]], None]


class InternalRequests:
    """`ask` one; `mine` takes what answers it. `session` is the kernel's own, learnt from its answers."""

    def __init__(self, send: Send) -> None:
        self.session = ""
        self._send = send
        self._asked: Dict[str, Optional[Answered]] = {}

    def ask(
        self, channel: Channel, msg_type: str, content: Dict[str, Any], answered: Optional[Answered] = None
    ) -> None:
        """Sends a request; `answered(content of its reply)`."""
        parts = make(msg_type, content, session=OURS)
        self._asked[Message(channel, CLIENT, parts).msg_id] = answered
        self._send(channel, CLIENT, parts)

    def run(self, expression: str, answered: Answered) -> None:
        """Evaluates an expression in the kernel, silently; `answered({"status", "data" or "evalue"})`."""
        content: Dict[str, Any] = {"code": "", "silent": True, "store_history": False, "allow_stdin": False}
        content.update(stop_on_error=False, user_expressions={"value": expression})

        def reply(content: Dict[str, Any]) -> None:
            answered(content.get("user_expressions", {}).get("value", {}))

        self.ask(Channel.SHELL, "execute_request", content, reply)

    def mine(self, message: Message, msg_type: str, parent: str) -> bool:
        """Whether this message belongs to a question of ours; then it is dealt with."""
        if parent not in self._asked:
            return False
        self.session = str(message.header().get("session", ""))
        if message.channel is Channel.IOPUB:
            idle = msg_type == "status" and message.content().get("execution_state") == "idle"
            if idle and self._asked[parent] is None:
                del self._asked[parent]
        else:
            answered, self._asked[parent] = self._asked[parent], None  # its idle is still to come
            if answered is not None:
                answered(message.content())
        return True

    def forget(self) -> None:
        """The kernel is another one now."""
        self._asked.clear()
