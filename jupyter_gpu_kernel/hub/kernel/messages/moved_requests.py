"""What is sent again when a kernel that has run no user cell moves to another host, and what front ends get only once.

Some front ends, such as VS Code, run code of their own at the start. The kernel on the other host runs that code, too,
and its replies are dropped. Front ends know already that a waiting cell is busy, so a second busy status is dropped.
This module knows neither link nor sockets.
"""

from __future__ import annotations

from ....wire.compose import is_user_cell
from ....wire.messages import Channel, Message, id_of, parent_id_of, type_of

_MAX_REQUESTS = 50
_MAX_BYTES = 1024 * 1024


class MovedRequests:
    """`sent` gets every request to the kernel as long as the kernel can move, and `observe` every message of the
    kernel."""

    def __init__(self) -> None:
        self.can_move = True
        """Whether another kernel can repeat everything that the kernel has executed so far."""
        self._requests: dict[str, Message] = {}
        self._size = 0
        self._cells: set[str] = set()
        self._dropped: set[str] = set()
        self._busy: set[str] = set()

    def sent(self, request: Message) -> None:
        """Take note of a request to the kernel."""
        if request.channel is not Channel.SHELL or type_of(request) != "execute_request":
            return
        if is_user_cell(request):
            self._cells.add(id_of(request))
            return
        self._requests[id_of(request)] = request.unparsed()
        self._size += sum(map(len, request.parts))
        if len(self._requests) > _MAX_REQUESTS or self._size > _MAX_BYTES:
            self.can_move = False

    def observe(self, message: Message) -> None:
        """Take note of a message of the kernel. When a user's cell was executed, the kernel cannot move any more."""
        if message.channel is Channel.SHELL and b'"execute_reply"' in message.parts[0]:
            msg_id = parent_id_of(message)
            if msg_id in self._cells:
                self._cells.discard(msg_id)
                if b'"ok"' in message.parts[3][:4096]:
                    self.can_move = False

    def settle(self) -> None:
        """The kernel stays on its host."""
        self.can_move = False
        self._requests.clear()
        self._cells.clear()

    def begin(self, unanswered: set[str], busy: set[str]) -> list[Message]:
        """Return the requests that the kernel on the other host has to repeat. `unanswered`: the ids of the cells that
        this kernel gets anyway; `busy`: the ids of the cells that are busy as far as front ends know."""
        repeated = [one for msg_id, one in self._requests.items() if msg_id not in unanswered]
        self._dropped = {id_of(one) for one in repeated}
        self._busy = set(busy)
        self.settle()
        return repeated

    def answered_here(self, cells: list[Message]) -> None:
        """These cells were interrupted by the hub: front ends do not get a keeper's later messages about them."""
        self._dropped.update(map(id_of, cells))

    def drops(self, message: Message) -> bool:
        """Return whether front ends do not get this message of the other kernel."""
        if not self._dropped and not self._busy:
            return False
        parent = parent_id_of(message)
        if parent in self._dropped:
            return True
        if parent in self._busy and message.channel is Channel.IOPUB and b'"status"' in message.parts[0]:
            self._busy.discard(parent)
            return b'"busy"' in message.parts[3]
        return False
