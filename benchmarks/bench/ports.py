"""TCP ports for servers of a run that are told their ports before they bind them.

The system gives ports of its ephemeral range (`ip_local_port_range`) to any connection, so a port that is chosen there,
as jupyter_client does, can be taken before ssh or the kernel has bound it.
"""

from __future__ import annotations

import random
import socket

_BELOW_EPHEMERAL = range(10_000, 32_700)


def choose(count: int) -> list[int]:
    """Return so many different ports on which nobody listens here."""
    chosen: list[int] = []
    while len(chosen) < count:
        port = random.choice(_BELOW_EPHEMERAL)
        if port not in chosen and _is_free(port):
            chosen.append(port)
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
