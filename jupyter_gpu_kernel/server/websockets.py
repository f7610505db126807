"""Kernel websockets that send each message at once: without this, a cell's end reaches a page 40 ms late.

A kernel answers a cell with several small messages. Nagle's algorithm holds the second one back until the page's system
has acknowledged the first, which systems delay. See docs/upstream/websocket-nodelay.md.
"""

from __future__ import annotations

from typing import Any

from jupyter_core.utils import ensure_async

CONNECTION_CLASS = "kernel_websocket_connection_class"
"""The name of the server's setting with the class that joins a page's websocket to a kernel's sockets."""


def without_delay(connection_class: Any) -> Any:
    """Return the class of websocket connections that a server uses, whichever it is, with TCP_NODELAY."""

    async def connect(self: Any) -> Any:
        """Join the websocket, which is open now, to the kernel."""
        self.websocket_handler.set_nodelay(True)
        return await ensure_async(super(undelayed, self).connect())

    # Its name stays that of the server's class: configuration and the log use it.
    more = {
        "connect": connect,
        "__module__": connection_class.__module__,
        "__doc__": connection_class.__doc__,
    }
    undelayed = type(connection_class)(connection_class.__name__, (connection_class,), more)
    return undelayed
