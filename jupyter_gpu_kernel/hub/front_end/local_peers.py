"""Refuses connections of other users of this machine to our loopback ports, where the system tells whose they are.

libzmq does not let us choose whom it accepts. Therefore a monitor of each socket tells which connections were accepted,
and those of other users are shut down. They must not complete their handshake before libzmq notices that. So libzmq
is told to ask us about every connection (ZAP, RFC 27), and gets its answer when no connection that came before is still
to be closed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import socket
import threading
from functools import cache
from queue import SimpleQueue
from typing import Any, NamedTuple

import zmq
from zmq.utils.monitor import parse_monitor_message

from . import peer_uid

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED
_ADDRESS = "inproc://zeromq.zap.01"
"""Where libzmq asks."""
_WAKE = 2
"""Frames of a message that only wakes the thread."""
_log = logging.getLogger(__name__)


def guard(bound: zmq.Socket[Any]) -> None:
    """A socket that is not yet bound will be connected to by processes of this user and of root only. Where the system
    does not tell whose a connection is, nothing is changed."""
    if peer_uid.available():
        _guards(bound.context).add(bound)


@cache
def _guards(context: zmq.Context[Any]) -> _Guards:
    return _Guards(context)


class _Request(NamedTuple):
    """libzmq's question whether a connection may be used, and how many had been accepted by then."""

    envelope: list[bytes]
    accepted: int


class _Guards:
    """All guarded sockets of a context, on a thread: libzmq is answered also while the hub's loop is busy."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self._context = context
        self._numbers = itertools.count(1)
        self._new: SimpleQueue[_Guard] = SimpleQueue()
        self._guards: dict[bytes, _Guard] = {}
        self._requests = context.socket(zmq.ROUTER)
        self._requests.linger = 0
        self._requests.bind(_ADDRESS)
        threading.Thread(target=self._run, name="local peers", daemon=True).start()

    def add(self, bound: zmq.Socket[Any]) -> None:
        """Called on any thread."""
        name = f"local-peers-{next(self._numbers)}"
        bound.monitor(f"inproc://{name}", _EVENTS)
        monitor = self._context.socket(zmq.PAIR)
        monitor.linger = monitor.rcvhwm = 0  # libzmq's own thread would wait for room
        monitor.connect(f"inproc://{name}")
        bound.zap_domain = name.encode()
        self._new.put(_Guard(name.encode(), monitor))
        with self._context.socket(zmq.DEALER) as wake:
            wake.connect(_ADDRESS)
            wake.send(b"")

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._requests, zmq.POLLIN)
        while True:
            poller.poll()
            requests = _received(self._requests)
            while not self._new.empty():
                new = self._new.get()
                self._guards[new.name] = new
                poller.register(new.monitor, zmq.POLLIN)
            for guard in list(
                self._guards.values()
            ):  # after the requests were received: accepted before them
                guard.follow()
            for request in requests:
                if len(request) > _WAKE:
                    self._ask(request)
            for guard in list(self._guards.values()):
                for envelope in guard.answerable():
                    self._allow(envelope)
                if guard.stopped:
                    poller.unregister(guard.monitor)
                    guard.monitor.close()
                    del self._guards[guard.name]

    def _ask(self, request: list[bytes]) -> None:
        at = request.index(b"")
        envelope, (version, number, domain) = request[: at + 1], request[at + 1 : at + 4]
        guard = self._guards.get(domain)
        if guard is None:  # encrypted: only who knows the key gets this far
            return self._allow([*envelope, version, number])
        guard.waiting.append(_Request([*envelope, version, number], guard.accepted))

    def _allow(self, envelope: list[bytes]) -> None:
        self._requests.send_multipart([*envelope, b"200", b"", b"", b""])


class _Guard:
    """One socket: the connections that it accepted from other users and has not closed yet, and who waits for that."""

    def __init__(self, name: bytes, monitor: zmq.Socket[bytes]) -> None:
        self.name = name
        self.monitor = monitor
        self.accepted = 0
        self.stopped = False
        self.waiting: list[_Request] = []
        self._refused: dict[int, int] = {}  # descriptor: which of the accepted ones

    def follow(self) -> None:
        """What the monitor has told since."""
        for frames in _received(self.monitor):
            event = parse_monitor_message(frames)
            descriptor = int(event["value"])
            if event["event"] == zmq.EVENT_ACCEPTED:
                self.accepted += 1
                if _refuses(descriptor, int(event["endpoint"].rpartition(b":")[2])):
                    self._refused[descriptor] = self.accepted
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                self._refused.pop(descriptor, None)
            else:
                self.stopped = True

    def answerable(self) -> list[list[bytes]]:
        """Requests of connections before which no refused one is left. A flood of those does not hold them up."""
        oldest = min(self._refused.values(), default=math.inf)
        ready = [request for request in self.waiting if request.accepted < oldest]
        self.waiting = [request for request in self.waiting if request.accepted >= oldest]
        return [request.envelope for request in ready]


def _refuses(descriptor: int, port: int) -> bool:
    """Shuts an accepted connection down if it is another user's."""
    try:
        connection = socket.fromfd(descriptor, socket.AF_INET6, socket.SOCK_STREAM)  # room for either address
    except OSError:
        return False  # closed meanwhile
    with connection:
        if not _is_on(connection, port):
            return False  # closed meanwhile, and the number belongs to another file
        uid = peer_uid.uid_of(connection)
        if uid in (os.geteuid(), 0):
            return False
        if uid is not None:  # else the peer has closed it again
            _log.warning("refused a connection of the user with the uid %s to a kernel's port", uid)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    return True


def _is_on(connection: socket.socket, port: int) -> bool:
    try:
        return bool(connection.getsockname()[1] == port)
    except (OSError, IndexError, TypeError):  # not a TCP socket
        return False


def _received(source: zmq.Socket[bytes]) -> list[list[bytes]]:
    messages = []
    with contextlib.suppress(zmq.Again):
        while True:
            messages.append(source.recv_multipart(zmq.NOBLOCK))
    return messages
