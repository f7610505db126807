"""The idle statuses that a client may have missed because its subscription to iopub came after them.

A front end connects its sockets at the same time, and sends a kernel_info_request at once. A kernel replies to that
request when no cell runs, and by then the front end has subscribed. But while a cell runs or the node is away, the
keeper or the hub replies immediately, and ZeroMQ drops an idle status for which there is no subscription yet.
JupyterLab and VS Code would wait for that idle status forever.
"""

from __future__ import annotations

from collections import deque

from ....wire.kernel_messages.compose import status
from ....wire.messages import Channel, Message
from ....wire.runtime import Runtime
from ...validate import MAX_HEADER

LATE = 10.0
"""Seconds by which a subscription may come later than the request of the same client."""
_MAX_REQUESTS = 20
"""Requests that are remembered."""


class LateSubscribers:
    """`observe` gets the messages to front ends. `repeated_idles` returns what a new subscriber may have missed."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._answered = deque[tuple[float, bytes]](maxlen=_MAX_REQUESTS)
        """The time of each idle status, and the header of its request."""

    def observe(self, *messages: Message) -> None:
        """Take note of messages to front ends."""
        for message in messages:
            header, request, _, content = message.parts[:4]
            is_idle = message.channel is Channel.IOPUB and b'"status"' in header and b'"idle"' in content
            if is_idle and b'"kernel_info_request"' in request and len(request) <= MAX_HEADER:
                self._answered.append((self._runtime.monotonic(), request))

    def repeated_idles(self) -> list[Message]:
        """Return the idle statuses of the last seconds once more, as new messages: clients refuse a message that they
        get twice."""
        since = self._runtime.monotonic() - LATE
        return [status(self._runtime, "idle", header) for time, header in self._answered if time >= since]
