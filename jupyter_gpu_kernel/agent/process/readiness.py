"""When a started kernel is ready: its sockets are bound, our subscription works, and it replies."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ...wire.messages import Channel
from ..loop import Loop
from ..relay.internal_requests import InternalRequests

INTERVAL = 0.1


class Readiness:
    """Calls `on_up()` when the kernel is ready. `reset` for every process, `begin` once its sockets are bound."""

    def __init__(self, loop: Loop, internal_requests: InternalRequests, on_up: Callable[[], None]) -> None:
        self.up = False
        self.kernel_info: Dict[str, Any] = {}
        """The kernel's kernel_info_reply."""
        self._loop = loop
        self._internal_requests = internal_requests
        self._on_up = on_up
        self._process = 0
        self._replied = self._published = False

    def reset(self) -> None:
        """The process has ended, or another one is to be started."""
        self.up = self._replied = self._published = False
        self._process += 1

    def begin(self) -> None:
        """Ask until a reply and an iopub message have come: messages to a socket that is not yet connected are lost."""
        self._ask(self._process)

    def received_iopub(self) -> None:
        """A message was received on iopub."""
        if not self._published:
            self._published = True
            self._check()

    def _ask(self, process: int) -> None:
        if not self.up and process == self._process:  # else that process has ended
            self._internal_requests.send(Channel.CONTROL, "kernel_info_request", {}, self._answered)
            self._loop.later(INTERVAL, lambda: self._ask(process))

    def _answered(self, info: Dict[str, Any]) -> None:
        self.kernel_info = info
        self._replied = True
        self._check()

    def _check(self) -> None:
        if not self.up and self._replied and self._published:
            self.up = True
            self._on_up()
