"""One question to a keeper over its socket: for attach, and for the kernel's own `%gpu missed`."""

from __future__ import annotations

import errno
import socket
from typing import Any, Dict, Optional

from ..wire.frames import FrameError, FrameReader, Kind, json_frame

ANSWER = 5.0
NOBODY = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)
"""How connecting to a keeper's socket fails where there is no keeper."""


class KeeperSilent(Exception):
    """There is a keeper, which does not answer in time."""


def ask_keeper(door: str, request: Dict[str, Any], timeout: float = ANSWER) -> Optional[Dict[str, Any]]:
    """What the keeper behind this socket answers; None if there is none. KeeperSilent after `timeout` seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout)
        try:
            sock.connect(door)
            sock.sendall(json_frame(Kind.REQUEST, request, number=1).encode())
            reader = FrameReader(greeting=False)
            while True:
                data = sock.recv(65536)
                if not data:
                    return None
                for frame in reader.feed(data):
                    if frame.kind is Kind.REPLY:
                        return frame.json()
        except (
            socket.timeout,
            BlockingIOError,
        ):  # the latter: so many ask that there is no room in its queue
            raise KeeperSilent(f"the keeper did not answer within {timeout:g} s") from None
        except (OSError, FrameError):  # the latter: what answers there is no keeper
            return None
