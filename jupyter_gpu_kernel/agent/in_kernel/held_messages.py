"""What the kernel publishes while it has no keeper: it is held for the next one, since ZeroMQ would drop it.

How much is held has a limit, as writers of output wait (`output_window.py`).
"""

from __future__ import annotations

import os
from typing import Any, Callable, List, Sequence

from ..read_marks import headers

_STATUS, _NOT_HELD = b'"status"', b'"kernel_info_request"'
"""In the header and the parent header of messages by which the next keeper notices that it receives: `Readiness`."""
Send = Callable[[], object]


class HeldMessages:
    """`hold`, then `release` or `drop`, in any thread. `send` is called in iopub's thread, as is what it gets.
    A forked child gives its messages to its parent, and holds none."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._on = False
        self._turn = 0  # how often messages were to be held
        self._held: List[Send] = []
        self._schedule: Callable[[Send], object] = lambda function: function()

    def bind(self, schedule: Callable[[Send], object]) -> None:
        """`schedule(function)` calls a function in iopub's thread."""
        self._schedule = schedule

    def hold(self) -> None:
        """There is no keeper."""
        self._turn += 1
        self._on = True

    def release(self) -> None:
        """The next keeper receives: send everything, in order."""
        turn = self._turn
        self._schedule(lambda: self._release(turn))

    def drop(self) -> None:
        """There will be no keeper any more."""
        self._on = False
        self._schedule(self._held.clear)

    def send(self, frames: Sequence[Any], send: Send) -> None:
        """Call `send()`, which sends these frames, now or when they are released."""
        if self._on and os.getpid() == self._process and not _passes(frames):
            self._held.append(send)
        else:
            send()

    def _release(self, turn: int) -> None:
        if turn != self._turn:  # that keeper was killed, too
            return
        self._on = False
        held, self._held = self._held, []
        for send in held:
            send()


def _passes(frames: Sequence[Any]) -> bool:
    found = headers(frames)
    return len(found) == 2 and _STATUS in found[0] and _NOT_HELD in found[1]
