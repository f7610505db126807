"""Stop on error, across any distance: a cell that was sent before its front end knew of an earlier one's failure
does not run.

The kernel does so for what is in its queue by then. For what is still on its way the hub says when it passes the reply
of a failed cell on to the front end: what comes before that word was sent before. No sockets here.
"""

from __future__ import annotations

from typing import Dict, Iterable, Optional, Set

from ...wire.messages import Message, MessageError, word

FEATURE = "heard"
"""What a hub says in its HELLO that tells which failures were heard of."""


class Aborts:
    """`asked` and `replied` see cells; `aborts(request)` decides; `heard` is the hub's word."""

    def __init__(self) -> None:
        self._stop_on_error: Dict[str, int] = {}  # msg_id: client, of cells not answered yet
        self._interrupted: Set[str] = set()  # msg_ids of cells that must not run if they come
        self._failed: Dict[int, str] = {}  # client: msg_id of its last cell that failed, not heard of yet

    def asked(self, request: Message) -> None:
        """An execute_request is to run."""
        content = request.content()
        if content.get("stop_on_error", True) and not content.get("silent", False):
            self._stop_on_error[str(request.header().get("msg_id"))] = request.client

    def replied(self, parent: str, reply: Message) -> None:
        """An execute_reply goes out."""
        client = self._stop_on_error.pop(parent, None)
        if client is not None and b'"error"' in reply.parts[3] and _status(reply) == "error":
            self._failed[client] = parent

    def heard(self, msg_id: str) -> None:
        """The front end has the reply of this cell."""
        self._failed = {client: failed for client, failed in self._failed.items() if failed != msg_id}

    def interrupted(self, cells: Iterable[str]) -> None:
        """An interrupt came for these cells, some of which may still be on their way."""
        self._interrupted = set(cells)

    def aborts(self, request: Message) -> bool:
        """Whether this execute_request was sent by somebody who did not know yet that an earlier one failed, or before
        an interrupt that overtook it."""
        return request.client in self._failed or request.header().get("msg_id") in self._interrupted

    def mark(self) -> Optional[Message]:
        """For a hub that comes: behind all that it lacks, it has passed these replies on, or one before it did."""
        return word(event="mark", replies=list(self._failed.values())) if self._failed else None

    def forget(self) -> None:
        """The front end is another one, or the hub one that does not tell."""
        self._failed.clear()
        self._stop_on_error.clear()


def _status(reply: Message) -> str:
    try:
        return str(reply.content().get("status"))
    except MessageError:
        return ""
