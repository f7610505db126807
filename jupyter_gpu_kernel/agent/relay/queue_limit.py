"""How much of what front ends asked for may wait before the kernel: in the keeper, or in the kernel's own queue.

A request waits until a state of the kernel names it, busy or idle. No sockets here.
"""

from __future__ import annotations

from collections import OrderedDict

from ...wire.messages import Channel, Message

MOST = 256 * 1024 * 1024
"""Bytes of requests that wait; one of any size may, if no other does."""
MOST_REQUESTS = 100_000


class QueueLimit:
    """`admits` every request that comes; `began` for every state of the kernel; `forget` when it is another one."""

    def __init__(self) -> None:
        self._size = 0
        self._waiting: OrderedDict[str, int] = OrderedDict()

    def admits(self, message: Message, msg_id: str) -> bool:
        """Whether this request may wait, too."""
        if message.channel is Channel.STDIN:  # an answer, of which the kernel says no state
            return True
        size = sum(map(len, message.parts))
        if self._waiting and (self._size + size > MOST or len(self._waiting) >= MOST_REQUESTS):
            return False
        self._size += size - self._waiting.pop(msg_id, 0)
        self._waiting[msg_id] = size
        return True

    def began(self, msg_id: str) -> None:
        """The kernel has it, or it was answered here."""
        self._size -= self._waiting.pop(msg_id, 0)

    def forget(self) -> None:
        """What waited went with the kernel, or is asked again of the next one."""
        self._waiting.clear()
        self._size = 0
