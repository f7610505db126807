"""A connection to the socket of a keeper, or of a job's process, on which requests are sent and replies are received.

It needs no event loop. This module does not know what requests and replies mean.
"""

from __future__ import annotations

import socket
from typing import Any, Dict, List, Optional

from ...wire.stream.frames import FrameError, FrameReader, Kind, json_frame


class PeerGone(ConnectionError):
    """The process at the other end has ended, or is none of ours."""


class RequestClient:
    """A connection to one process. The methods raise PeerGone if the process has ended."""

    def __init__(self, path: str, peer: str, timeout: float) -> None:
        """Connect. Raises OSError if no process listens there.

        peer: What errors call the process: "the keeper".
        timeout: The seconds that the process has to take a request, and to reply.
        """
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._peer = peer
        self._timeout = timeout
        self._reader = FrameReader(greeting=False)
        self._replies: List[Dict[str, Any]] = []
        try:
            self.sock.settimeout(timeout)
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise

    def send(self, request: Dict[str, Any]) -> None:
        """Send a request. Raises socket.timeout if the process does not take it in time."""
        self.sock.settimeout(self._timeout)
        try:
            self.sock.sendall(json_frame(Kind.REQUEST, request, number=1).encode())
        except ConnectionError as error:
            raise PeerGone(f"{self._peer} has ended: {error}") from None

    def receive(self, timeout: Optional[float]) -> Optional[Dict[str, Any]]:
        """Return the next reply; None if no reply comes within `timeout` seconds (None: wait for ever)."""
        self.sock.settimeout(timeout)
        while not self._replies:
            try:
                data = self.sock.recv(65536)
                frames = self._reader.feed(data)
                self._replies += [frame.json() for frame in frames if frame.kind is Kind.REPLY]
            except (socket.timeout, BlockingIOError):
                return None
            except (OSError, FrameError) as error:
                raise PeerGone(f"{self._peer} has ended: {error}") from None
            if not data:
                raise PeerGone(f"{self._peer} has ended")
        return self._replies.pop(0)

    def ask(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return the first reply to a request. Raises TimeoutError if there is none in time."""
        self.send(request)
        reply = self.receive(self._timeout)
        if reply is None:
            raise TimeoutError(f"{self._peer} did not answer within {self._timeout:g} s")
        return reply

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()
