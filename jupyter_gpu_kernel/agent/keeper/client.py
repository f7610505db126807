"""Sends one request to a keeper over its socket: for `attach`, and for `%gpu` in the kernel itself."""

from __future__ import annotations

import errno
import socket
from typing import Any, Dict, Optional

from ...wire.frames import FrameError, FrameReader, Kind, json_frame

TIMEOUT = 5.0
"""Seconds a keeper has to reply."""
NO_KEEPER = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)
"""The errors of connecting to a keeper's socket where there is no keeper."""


class KeeperTimeout(Exception):
    """There is a keeper, but it does not reply in time."""


def ask_keeper(path: str, request: Dict[str, Any], timeout: float = TIMEOUT) -> Optional[Dict[str, Any]]:
    """Return the reply of the keeper at this socket; None if there is none. KeeperTimeout after `timeout` seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout)
        try:
            sock.connect(path)
            sock.sendall(json_frame(Kind.REQUEST, request, number=1).encode())
            reader = FrameReader(greeting=False)
            while True:
                data = sock.recv(65536)
                if not data:
                    return None
                for frame in reader.feed(data):
                    if frame.kind is Kind.REPLY:
                        return frame.json()
        except (socket.timeout, BlockingIOError):  # the latter: the socket's queue of connections is full
            raise KeeperTimeout(f"the keeper did not answer within {timeout:g} s") from None
        except (OSError, FrameError):  # the latter: another program answers
            return None
