"""Refuses connections of other users of this machine to our loopback ports, where the system tells the peer's user.

libzmq does not let us choose which connections it accepts. Therefore a monitor of each socket reports the accepted
connections, and those of other users are shut down. They must not complete their handshake before libzmq notices that.
So libzmq is configured to ask us about every connection (ZAP, RFC 27), and gets its answer when no connection that was
accepted earlier is still to be closed.

Linux reports the user of a connection over netlink, see sock_diag(7).
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import logging
import math
import os
import selectors
import socket
import struct
import sys
import threading
from functools import cache
from queue import SimpleQueue
from typing import Any, NamedTuple

import zmq
from zmq.utils.monitor import parse_monitor_message

from ...wire import sock_diag

Address = tuple[str, int]

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED
_ZAP = "inproc://zeromq.zap.01"
"""The address to which libzmq sends its requests."""
_WAKE_UP = 2
"""The number of frames in a message that only wakes the thread."""
_log = logging.getLogger(__name__)


def guard(bound: zmq.Socket[Any]) -> None:
    """Let only processes of this user and of root connect to this socket, which is not bound yet. Where the system does
    not tell the user of a connection, nothing is changed."""
    if available():
        _guards(bound.context).add(bound)


@cache
def _guards(context: zmq.Context[Any]) -> _Guards:
    return _Guards(context)


class _ZapRequest(NamedTuple):
    """libzmq's question whether a connection may be used, and how many had been accepted by then."""

    envelope: list[bytes]
    accepted: int


class _Guards:
    """All guarded sockets of a context. They have a thread, so that libzmq gets answers also while the hub's event loop
    is busy."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self._context = context
        self._numbers = itertools.count(1)
        self._new: SimpleQueue[_Guard] = SimpleQueue()
        self._guards: dict[bytes, _Guard] = {}
        self._requests = context.socket(zmq.ROUTER)
        self._requests.linger = 0
        self._requests.bind(_ZAP)
        threading.Thread(target=self._run, name="local peers", daemon=True).start()

    def add(self, bound: zmq.Socket[Any]) -> None:
        """Guard one more socket; callable on any thread."""
        name = f"local-peers-{next(self._numbers)}"
        bound.monitor(f"inproc://{name}", _EVENTS)
        monitor = self._context.socket(zmq.PAIR)
        monitor.linger = monitor.rcvhwm = 0  # libzmq's own thread would wait for room
        monitor.connect(f"inproc://{name}")
        bound.zap_domain = name.encode()
        self._new.put(_Guard(name.encode(), monitor))
        with self._context.socket(zmq.DEALER) as wake:
            wake.connect(_ZAP)
            wake.send(b"")

    def _run(self) -> None:
        """Only sockets of which something was reported are read: there may be thousands."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests.FD, selectors.EVENT_READ)
            while True:
                # Sending takes in what was received meanwhile, and the descriptor reports that only once.
                pending = int(self._requests.get(zmq.EVENTS)) & zmq.POLLIN
                ready = {
                    key.data for key, _ in selector.select(0 if pending else None) if key.data is not None
                }
                self._serve(selector, ready)

    def _serve(self, selector: selectors.BaseSelector, ready: set[_Guard]) -> None:
        """Take in what was reported of these guards and of new ones, and answer requests."""
        requests = _receive_all(self._requests)
        while not self._new.empty():
            new = self._new.get()
            self._guards[new.name] = new
            selector.register(new.monitor.FD, selectors.EVENT_READ, new)
            ready.add(new)
        requests = [request for request in requests if len(request) > _WAKE_UP]
        named = (self._guards.get(request[request.index(b"") + 3]) for request in requests)
        ready.update(guard for guard in named if guard is not None)
        # Only now, after the requests: the connections they are about were accepted before.
        for guard in ready:
            guard.read_events()
        for request in requests:
            self._handle(request)
        for guard in ready:
            for envelope in guard.pop_answerable():
                self._allow(envelope)
            if guard.stopped:
                selector.unregister(guard.monitor.FD)
                guard.monitor.close()
                del self._guards[guard.name]

    def _handle(self, request: list[bytes]) -> None:
        at = request.index(b"")
        envelope, (version, number, domain) = request[: at + 1], request[at + 1 : at + 4]
        guard = self._guards.get(domain)
        if guard is None:  # an encrypted socket: only peers that know the key get this far
            return self._allow([*envelope, version, number])
        guard.waiting.append(_ZapRequest([*envelope, version, number], guard.accepted))

    def _allow(self, envelope: list[bytes]) -> None:
        self._requests.send_multipart([*envelope, b"200", b"", b"", b""])


class _Guard:
    """One socket: the connections of other users that it accepted and has not closed yet, and the requests that wait
    for that."""

    def __init__(self, name: bytes, monitor: zmq.Socket[bytes]) -> None:
        self.name = name
        self.monitor = monitor
        self.accepted = 0
        self.stopped = False
        self.waiting: list[_ZapRequest] = []
        self._refused: dict[int, int] = {}  # descriptor: number among the accepted connections

    def read_events(self) -> None:
        """Handle what the monitor has reported."""
        for frames in _receive_all(self.monitor):
            event = parse_monitor_message(frames)
            descriptor = int(event["value"])
            if event["event"] == zmq.EVENT_ACCEPTED:
                self.accepted += 1
                if _refuse_others(descriptor, int(event["endpoint"].rpartition(b":")[2])):
                    self._refused[descriptor] = self.accepted
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                self._refused.pop(descriptor, None)
            else:
                self.stopped = True

    def pop_answerable(self) -> list[list[bytes]]:
        """Return the requests of connections before which no refused one is left, so that a flood of those does not
        hold them up."""
        oldest = min(self._refused.values(), default=math.inf)
        ready = [request for request in self.waiting if request.accepted < oldest]
        self.waiting = [request for request in self.waiting if request.accepted >= oldest]
        return [request.envelope for request in ready]


def _refuse_others(descriptor: int, port: int) -> bool:
    """Shut an accepted connection down if it belongs to another user. Return whether it was."""
    try:
        connection = socket.fromfd(descriptor, socket.AF_INET6, socket.SOCK_STREAM)  # room for either address
    except OSError:
        return False  # closed meanwhile
    with connection:
        if sys.platform == "win32" or not _has_port(connection, port):
            return False  # closed meanwhile, and the number belongs to another file
        uid = uid_of(connection)
        if uid in (os.geteuid(), 0):
            return False
        if uid is not None:  # else the peer has closed it already
            _log.warning("refused a connection of the user with uid %s to a kernel's port", uid)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    return True


def _has_port(connection: socket.socket, port: int) -> bool:
    try:
        return bool(connection.getsockname()[1] == port)
    except (OSError, IndexError, TypeError):  # not a TCP socket
        return False


def _receive_all(source: zmq.Socket[bytes]) -> list[list[bytes]]:
    messages = []
    with contextlib.suppress(zmq.Again):
        while True:
            messages.append(source.recv_multipart(zmq.NOBLOCK))
    return messages


# ---------------------------------------------------------------------- the user at the other end of a TCP connection

_ESTABLISHED = 1
"""A socket that its process has closed is in another state, and belongs to root."""

_SOCKET = struct.Struct("!HH16s16s12s")
_ANY = bytes(4) + b"\xff" * 8  # interface, cookie


@cache
def available() -> bool:
    """Return whether the system reports a peer's uid; checked with a connection to itself."""
    if sys.platform != "linux":
        return False
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            with socket.create_connection(address) as client:
                return query_netlink(client.getsockname(), address) == os.geteuid()
    except OSError:
        return False


def uid_of(connection: socket.socket) -> int | None:
    """Return the uid that owns the peer's socket; None if the socket is closed or cannot be found."""
    try:
        return query_netlink(connection.getpeername()[:2], connection.getsockname()[:2])
    except OSError:
        return None


def query_netlink(client: Address, server: Address) -> int | None:
    """Return the owner of the socket at `client` that is connected to `server`, as netlink reports it."""
    local, remote = (_ip(ip).packed.ljust(16, b"\0") for ip, _ in (client, server))
    family = socket.AF_INET if _ip(client[0]).version == 4 else socket.AF_INET6
    request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 1 << _ESTABLISHED)
    request += _SOCKET.pack(client[1], server[1], local, remote, _ANY)
    try:
        answer = sock_diag.query(request)
    except FileNotFoundError:
        return None
    _, state, *_, uid, _ = struct.unpack_from("=BBBB48x5I", answer)
    return int(uid) if state == _ESTABLISHED else None


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    return (address.version == 6 and address.ipv4_mapped) or address
