"""A ZeroMQ socket on the hub's event loop, which sends at once.

pyzmq's `ZMQStream` sends in a later turn of the loop, and asks libzmq several times for each message what it may do.
The socket's descriptor reports a change only once. The loop must be able to watch descriptors, as the hub's does: on
Windows that is not asyncio's usual loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import zmq

_TURN = 100
"""Messages received in one turn of the loop, before other sockets have theirs."""
_LAST, _MORE, _READABLE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE), int(zmq.POLLIN)
"""Plain numbers: to combine ZeroMQ's flags for each frame, as pyzmq does, takes longer than to send it."""


class WatchedSocket:
    """Calls `receive(frames)` for each message that comes. `send` never blocks."""

    def __init__(self, socket: zmq.Socket[bytes], receive: Callable[[list[bytes]], None]) -> None:
        self.socket = socket
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._descriptor = socket.FD
        self._scheduled = False
        self._loop.add_reader(self._descriptor, self._read)
        self._read_soon()

    def send(self, frames: list[Any], copy: bool = True) -> None:
        """Send one message; drop it, as libzmq does, if there is a limit for its receiver."""
        with contextlib.suppress(zmq.Again):
            for frame in frames[:-1]:
                self.socket.send(frame, _MORE, copy)
            self.socket.send(frames[-1], _LAST, copy)
        # Sending may have taken in what was received, and the descriptor reports that only once.
        if not self._scheduled and int(self.socket.get(zmq.EVENTS)) & _READABLE:
            self._read_soon()

    def close(self, linger: int) -> None:
        """Close the socket; what was sent may take `linger` milliseconds."""
        self._loop.remove_reader(self._descriptor)
        self.socket.close(linger=linger)

    def _read_soon(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Receive what has come, until there is nothing or it is others' turn."""
        self._scheduled = False
        for _ in range(_TURN):
            if self.socket.closed:
                return
            try:
                frames = self.socket.recv_multipart(_LAST)
            except zmq.Again:
                return
            try:
                self._receive(frames)
            except BaseException:  # the loop reports it; the next messages must not wait
                self._read_soon()
                raise
        self._read_soon()
