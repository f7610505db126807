"""Answers the heartbeats of one front end, a few times a second while there are some."""

from __future__ import annotations

import asyncio
import contextlib

import zmq

INTERVAL = 0.25
"""Seconds. All front ends have their turn at the same moment: to wake up for each heartbeat costs more than to answer
it. A client of jupyter_client sends one a second, and waits for 1 s."""
_QUIET = 8
"""Turns without a heartbeat; then the loop watches the socket."""
_MOST = 100
"""Heartbeats answered in one turn."""


class HeartbeatSocket:
    """A socket whose messages are sent back from now on."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self._loop = asyncio.get_running_loop()
        self._descriptor = socket.FD
        self._quiet = 0  # turns in which none came
        self._timer: asyncio.Handle = self._loop.call_soon(self._turn)

    def close(self, linger: int) -> None:
        """Close the socket; what was sent may take `linger` milliseconds."""
        self._timer.cancel()
        self._loop.remove_reader(self._descriptor)
        self.socket.close(linger=linger)

    def _came(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._quiet = 0
        self._turn()

    def _turn(self) -> None:
        watches = self._quiet == _QUIET
        if watches:  # before the socket is read, as the descriptor reports a change only once
            self._loop.add_reader(self._descriptor, self._came)
        if self._answer():
            self._loop.remove_reader(self._descriptor)
            self._quiet = 0
        elif watches:
            return
        else:
            self._quiet += 1
        turn = (self._loop.time() // INTERVAL + 1) * INTERVAL
        self._timer = self._loop.call_at(turn, self._turn)

    def _answer(self) -> int:
        """Return how many were answered."""
        count = 0
        with contextlib.suppress(zmq.Again):
            while count < _MOST and int(self.socket.get(zmq.EVENTS)) & zmq.POLLIN:
                count += 1
                self.socket.send_multipart(self.socket.recv_multipart(zmq.NOBLOCK), zmq.NOBLOCK)
        return count
