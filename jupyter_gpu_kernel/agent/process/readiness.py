"""When a kernel that was started can be spoken to: its sockets are bound, our subscription works, it answers."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ...wire.messages import Channel
from ..loop import Loop
from ..relay.internal_requests import InternalRequests

NUDGE = 0.1


class Readiness:
    """`reset` for every process, `begin` once its sockets are bound, `heard_iopub` at every message from there."""

    def __init__(self, loop: Loop, internal_requests: InternalRequests, on_up: Callable[[], None]) -> None:
        self.up = False
        self.kernel_info: Dict[str, Any] = {}
        """What the kernel says of itself."""
        self._loop = loop
        self._internal_requests = internal_requests
        self._on_up = on_up
        self._process = 0
        self._heard_reply = self._heard_iopub = False

    def reset(self) -> None:
        """Another process, or none."""
        self.up = self._heard_reply = self._heard_iopub = False
        self._process += 1

    def begin(self) -> None:
        """Asks until an answer and a publication have come; messages to a socket not yet connected are lost."""
        self._nudge(self._process)

    def heard_iopub(self) -> None:
        """The kernel published something that came here."""
        if not self._heard_iopub:
            self._heard_iopub = True
            self._check()

    def _nudge(self, process: int) -> None:
        if not self.up and process == self._process:  # else that process is gone, and perhaps another there
            self._internal_requests.send(Channel.CONTROL, "kernel_info_request", {}, self._answered)
            self._loop.later(NUDGE, lambda: self._nudge(process))

    def _answered(self, info: Dict[str, Any]) -> None:
        self.kernel_info = info
        self._heard_reply = True
        self._check()

    def _check(self) -> None:
        if not self.up and self._heard_reply and self._heard_iopub:
            self.up = True
            self._on_up()
