"""Opens TCP connections to a host name and port with a timeout, and tunes them. This module knows no SSH."""

from __future__ import annotations

import socket
import time
from functools import partial

from ..transport.time_limit import return_within

RETRY_AFTER = 3.0
"""Seconds until an attempt is started again: the system repeats a lost SYN packet only after 1, 3, 7 and 15 s, and the
network may be back in between."""
_SHORTEST = 1.0  # seconds of an attempt, if that many remain: on a long path the answer takes some hundred milliseconds


def dial(host: str, port: int, timeout: float) -> socket.socket:
    """Return a connected socket. Raises OSError. The addresses of the host are tried in turn, for some seconds each, so
    that a dead one does not use up the time, unless that is very short."""
    end = time.monotonic() + timeout
    while True:
        remaining = max(end - time.monotonic(), 0.05)
        each = min(max(remaining / 2, _SHORTEST), remaining, RETRY_AFTER)
        try:
            sock = return_within(remaining, partial(socket.create_connection, (host, port), each))
        except UnicodeError as error:
            raise socket.gaierror(str(error)) from error
        except TimeoutError:
            if time.monotonic() >= end:
                raise
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock
