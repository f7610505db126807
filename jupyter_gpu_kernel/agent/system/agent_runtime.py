"""What a process of the agent takes from its machine: the clocks and random numbers of Runtime, and unix sockets.

A simulation passes another object with these methods.
"""

from __future__ import annotations

import os
import socket
from typing import IO

from ...wire.runtime import Runtime


class AgentRuntime(Runtime):
    """The clocks, random numbers and unix sockets of this process."""

    def pid(self) -> int:
        """Return the id by which the system names this process to those who connect to its sockets."""
        return os.getpid()

    def unix_socket(self, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Return a new unix socket, which does not block."""
        return socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)

    def received_socket(self, descriptor: int) -> socket.socket:
        """Return the socket of a descriptor that another process has passed."""
        return socket.socket(fileno=descriptor)

    def socket_table(self) -> IO[bytes]:
        """Return the list of the unix sockets of all processes, a line for each. Raises OSError where the site hides
        that list."""
        return open("/proc/net/unix", "rb")
