"""The five ZeroMQ sockets to which one front end connects: addresses, ports, options, binding, and how much of what was
sent is still unread.

This module knows no messages.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zmq

from ...errors import HubError, SettingsError
from ...wire.stream.frames import CHUNK
from ...wire.stream.queues import MAX_MESSAGE
from . import local_peers
from .watched_socket import WatchedSocket

MAX_UNREAD = 4 * 1024 * 1024
"""Bytes. At this limit no more is sent: it is enough to keep any front end busy, and little memory for each of them."""
_TYPES = {
    "shell": zmq.ROUTER,
    "iopub": zmq.XPUB,
    "stdin": zmq.ROUTER,
    "control": zmq.ROUTER,
    "hb": zmq.ROUTER,
}
_SMALL = 1024
"""The most bytes of a heartbeat, and of a subscription."""
_MAX_SOCKETS = 20_000
"""Of ZeroMQ, in this process: 15 for each front end. ZeroMQ itself would take 1023, and needs 12 bytes for each."""
_BIND_RETRY = 0.02
"""Seconds until we try again to bind a port that we have just closed."""

_ADDRESS_REMEDY = (
    "Use an address of this computer, such as 127.0.0.1 (KernelManager.ip), and ports from 1024 on."
)
_PORT_REMEDY = "Another program uses the port. Start the kernel again to get other ports."
_FILES_REMEDY = "Shut down kernels here that you do not need, or raise the limit for open files (ulimit -Hn)."
_IPC_REMEDY = "Choose a shorter path, in a folder that you can write to, for the front end's setting “ip”."

Receive = Callable[[str, list[bytes]], None]


class Sockets:
    """The sockets, bound when the constructor returns. `connection` has the ports that were chosen."""

    def __init__(self, connection: dict[str, Any], receive: Receive, clock: Callable[[], float]) -> None:
        """`receive(channel, frames)` gets what clients send, except heartbeats."""
        self.connection = dict(connection)
        self._receive = receive
        self._sockets: dict[str, WatchedSocket] = {}
        self._clock = clock
        self._unread = {channel: _UnreadBytes(clock) for channel in _TYPES}
        self._closed = False
        self._check_address()
        try:
            for channel in _TYPES:
                self._bind(channel)
        except BaseException:
            self.close()
            raise

    def has_room(self, channel: str) -> bool:
        """Whether more may be sent on this socket."""
        return self._unread[channel].has_room

    def unread(self, channel: str) -> int:
        """Return how many bytes the slowest client of this socket has not received."""
        return self._unread[channel].size

    def stalled_since(self, channel: str) -> float:
        """Return the time (by `clock`) since which clients have received nothing although there is something."""
        return self._unread[channel].stalled_since

    def send(self, channel: str, envelope: list[bytes], parts: Sequence[bytes], client: int) -> None:
        """Send a message to this client (0: to all). It is dropped for a moment after `disconnect`."""
        if channel in self._sockets:
            frames = [*envelope, *self._unread[channel].track(parts, client)]
            self._sockets[channel].send(frames, copy=isinstance(frames[-1], bytes))

    def disconnect(self, channel: str) -> None:
        """Close all connections of a socket and drop what its clients have not received. Running clients connect again
        by themselves."""
        self._unread[channel] = _UnreadBytes(self._clock)
        self._sockets.pop(channel).close(linger=0)
        self._rebind(channel)

    def restore_ipc_files(self) -> None:
        """Bind ipc sockets again whose files jupyter_client removed, as it does before a restart: it uses the same
        names again.

        Unbinding them first would close the connections of clients that stay.
        """
        for channel, bound in self._sockets.items():
            path = Path(self._address(channel).removeprefix("ipc://"))
            if self._is_ipc and not path.exists():
                self._bind_address(bound.socket, channel)

    def close(self) -> None:
        """Unbind, after a moment in which messages can still be sent."""
        self._closed = True
        for bound in self._sockets.values():
            bound.close(linger=1000)
        self._sockets.clear()

    # -------------------------------------------------------------------------------------- binding

    def _check_address(self) -> None:
        """On addresses other than loopback anybody could read along, unless the connection is encrypted."""
        if not self._is_ipc and ":" in self._ip:
            raise SettingsError(
                f"the connection file has the IPv6 address {self._ip}: Jupyter's clients use IPv4 only",
                remedy="Use 127.0.0.1 (KernelManager.ip).",
            )
        if not (self._is_ipc or self.connection.get("curve_secretkey") or _is_loopback(self._ip)):
            raise SettingsError(
                f"the connection file has the address {self._ip}: others could read what the kernel prints",
                remedy="Use 127.0.0.1, or encrypt the connection (KernelManager.transport_encryption).",
            )

    def _bind(self, channel: str) -> None:
        socket = self._new_socket(channel)
        try:
            self._configure(socket, channel)
            self._bind_address(socket, channel)
        except BaseException:
            socket.close(linger=0)
            raise
        self._sockets[channel] = WatchedSocket(socket, self._receiver(channel))

    def _new_socket(self, channel: str) -> zmq.Socket[bytes]:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        context.max_sockets = _MAX_SOCKETS  # this counts only before the first socket
        try:
            return context.socket(_TYPES[channel])
        except zmq.ZMQError as error:
            raise HubError(
                f"the hub cannot serve more kernels: {error.strerror}", remedy=_FILES_REMEDY
            ) from None

    def _configure(self, socket: zmq.Socket[bytes], channel: str) -> None:
        socket.linger = 1000
        socket.maxmsgsize = _SMALL if channel in ("hb", "iopub") else MAX_MESSAGE
        if channel != "hb":
            socket.sndhwm = 0  # we count the bytes of messages ourselves
        if channel == "iopub":
            socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        else:
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        if self.connection.get("curve_secretkey"):
            socket.curve_server = True
            socket.curve_secretkey = str(self.connection["curve_secretkey"]).encode()
            socket.curve_publickey = str(self.connection["curve_publickey"]).encode()
        elif not self._is_ipc:
            local_peers.guard(socket)

    def _rebind(self, channel: str) -> None:
        """libzmq releases a port a moment after its socket was closed."""
        if self._closed:
            return
        try:
            self._bind(channel)
        except HubError:
            asyncio.get_running_loop().call_later(_BIND_RETRY, self._rebind, channel)

    def _bind_address(self, socket: zmq.Socket[bytes], channel: str) -> None:
        port = int(self.connection.get(f"{channel}_port") or 0)
        try:
            if port or self._is_ipc:
                self.connection[f"{channel}_port"] = port or list(_TYPES).index(channel) + 1
                socket.bind(self._address(channel))
            else:
                self.connection[f"{channel}_port"] = socket.bind_to_random_port(f"tcp://{self._ip}")
        except zmq.ZMQError as error:
            raise HubError(
                f"cannot listen on the {channel} port {self._address(channel)}: {error.strerror}",
                remedy=self._bind_remedy(error),
            ) from None

    def _bind_remedy(self, error: zmq.ZMQError) -> str:
        if self._is_ipc:
            return _IPC_REMEDY
        return _PORT_REMEDY if error.errno == zmq.EADDRINUSE else _ADDRESS_REMEDY

    def _receiver(self, channel: str) -> Callable[[list[bytes]], None]:
        if channel == "hb":  # a heartbeat is sent back
            return lambda frames: self._sockets[channel].send(frames)
        return lambda frames: self._receive(channel, frames)

    @property
    def _ip(self) -> str:
        return str(self.connection.get("ip") or "127.0.0.1")

    @property
    def _is_ipc(self) -> bool:
        return bool(self.connection.get("transport") == "ipc")

    def _address(self, channel: str) -> str:
        port = self.connection.get(f"{channel}_port") or 0
        return f"ipc://{self._ip}-{port}" if self._is_ipc else f"tcp://{self._ip}:{port}"


Bind = Callable[[dict[str, Any], Receive, Callable[[], float]], Sockets]
"""Binds the sockets of a front end; a simulation passes another function."""


class _UnreadBytes:
    """The bytes that were given to one socket and that its clients have not received yet.

    libzmq does not report how much it has buffered, and its own limit counts messages and drops those above it. But it
    reports when it has released the memory of a message, which means that the last client has received it. One message
    in every CHUNK bytes is tracked, as tracking costs more than sending.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tracked: list[tuple[zmq.MessageTracker, int]] = []
        self._size = 0
        self._untracked: dict[int, int] = {}  # bytes since the last tracked message, by client
        self._progress = self._clock()

    @property
    def size(self) -> int:
        """The bytes that the slowest client has not received."""
        remaining = [(tracker, size) for tracker, size in self._tracked if not tracker.done]
        if len(remaining) < len(self._tracked) or not remaining:
            self._progress = self._clock()
        self._tracked, self._size = remaining, sum(size for _, size in remaining)
        return self._size

    @property
    def has_room(self) -> bool:
        """Whether more may be sent."""
        return self._size < MAX_UNREAD or self.size < MAX_UNREAD

    @property
    def stalled_since(self) -> float:
        """The time (by `clock`) since which clients have received nothing although there is something."""
        return self._progress if self.size else self._clock()

    def track(self, parts: Sequence[bytes], client: int) -> list[bytes | zmq.Frame]:
        """Count a message for this client (0: for all clients). Return the parts to give to the socket."""
        size = self._untracked.get(client, 0) + sum(map(len, parts))
        if size < CHUNK:
            self._untracked[client] = size
            return list(parts)
        self._untracked[client] = 0
        last = zmq.Frame(parts[-1], track=True, copy=False, copy_threshold=0)
        assert last.tracker is not None
        if not self._tracked:
            self._progress = self._clock()
        self._tracked.append((last.tracker, size))
        self._size += size
        return [*parts[:-1], last]


def _is_loopback(ip: str) -> bool:
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return ip == "localhost"
