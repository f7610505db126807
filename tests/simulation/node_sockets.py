"""The node's unix sockets as a model: names that only one socket can have, and descriptors that processes pass.

A name lives as long as any process has a descriptor of its socket: a killed process loses all of its own. What a
process writes is there at once. A process that connects to a socket is answered while it reads, as by another thread.
"""

from __future__ import annotations

import array
import errno
import io
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime

from .network import READABLE
from .world import Process, SimulatedRuntime, World

_LOCAL = 0.00005
_CREDENTIALS = struct.Struct("iII")


class _Open:
    """A socket that is open. `descriptors`: who has it; `passing`: how often it is under way to another process."""

    def __init__(self, table: SocketTable) -> None:
        self.table, self.inode = table, next(table.inodes)
        self.name = ""
        self.listener = 0
        """The process that listens, as the system names it."""
        self.descriptors: list[NodeSocket] = []
        self.passing = 0
        self.clients: deque[_Open] = deque()
        self.received: deque[tuple[bytes, list[_Open]]] = deque()
        self.peer: _Open | None = None
        self.peer_pid = 0

    def drop(self) -> None:
        """Free the name if nobody has this socket any more."""
        if self.descriptors or self.passing:
            return
        if self.table.names.get(self.name) is self:
            del self.table.names[self.name]
            self.table.on_change(None, self.name, False)
        for _, passed in self.received:
            for one in passed:
                one.passing -= 1
                one.drop()
        self.received.clear()


class NodeSocket:
    """A descriptor of a process: what `socket.socket` has of it."""

    def __init__(self, table: SocketTable, process: Process, opened: _Open | None = None) -> None:
        self._table, self.process = table, process
        self._open = opened or _Open(table)
        self._open.descriptors.append(self)
        self._number = 0
        self._closed = False
        table.descriptors.setdefault(process, {})[self] = None

    def __enter__(self) -> NodeSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def inherited(self, process: Process) -> NodeSocket:
        """Return the descriptor of a process that inherits this one."""
        return NodeSocket(self._table, process, self._open)

    def fileno(self) -> int:
        if self._closed:
            return -1
        self._number = self._number or self._table.world.register(self)
        return self._number

    def setblocking(self, _: bool) -> None:
        """Nothing here blocks."""

    def settimeout(self, _: float) -> None:
        """Nothing here blocks."""

    def getsockname(self) -> bytes:
        return self._open.name.encode()

    def getsockopt(self, _: int, option: int, size: int) -> bytes:
        assert option == socket.SO_PEERCRED and size == _CREDENTIALS.size
        return _CREDENTIALS.pack(self._open.peer_pid, os.getuid(), os.getgid())

    def bind(self, name: str) -> None:
        if name in self._table.names and name.startswith("\0"):
            raise OSError(errno.EADDRINUSE, "the name is in use")
        self._table.on_change(self.process, name, True)
        self._open.name = name
        self._table.names[name] = self._open

    def listen(self, _: int) -> None:
        self._open.listener = self._table.pid_of(self.process)

    def connect_ex(self, name: str) -> int:
        other = self._table.names.get(name)
        if other is None or not other.listener:
            return errno.ECONNREFUSED
        self._open.peer, self._open.peer_pid = other, other.listener
        other.clients.append(self._open)
        self._open.listener = self._table.pid_of(self.process)  # as the one who accepts it is told
        return 0

    def connect(self, name: str) -> None:
        other = self._table.names.get(name)
        if other is None:
            raise ConnectionRefusedError
        self._open.peer = other

    def accept(self) -> tuple[NodeSocket, str]:
        if not self._open.clients:
            raise BlockingIOError
        client = self._open.clients.popleft()
        accepted = NodeSocket(self._table, self.process)
        accepted._open.peer, accepted._open.peer_pid = client, client.listener
        client.peer = accepted._open
        return accepted, ""

    def send(self, data: bytes) -> int:
        peer = self._open.peer
        if peer is None or not peer.descriptors:
            raise BrokenPipeError
        peer.received.append((data, []))
        return len(data)

    def recv(self, size: int) -> bytes:
        """Receive; a listener of another process that has not accepted this connection does so now, if it can."""
        peer = self._open.peer
        if not self._open.received and peer is not None and self._open in peer.clients:
            for one in list(peer.descriptors):
                one.serve()
        if self._open.received:
            return self._open.received.popleft()[0][:size]
        raise BlockingIOError

    def serve(self) -> None:
        """Let the process of this descriptor accept who has connected."""
        if self.process.alive and self._number:
            self.process.system.loop.ready(self._number, READABLE)  # type: ignore[attr-defined]

    def sendmsg(self, buffers: list[bytes], ancillary: list[tuple[int, int, Any]], _: int) -> int:
        passed = [self._table.by_number(number)._open for _, _, numbers in ancillary for number in numbers]
        peer = self._open.peer
        if peer is None or not peer.descriptors:
            raise ConnectionRefusedError
        for one in passed:
            one.passing += 1
        peer.received.append((b"".join(buffers), passed))
        for one in peer.descriptors:
            one.check()
        return sum(map(len, buffers))

    def recvmsg(self, size: int, _: int, flags: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        if not self._open.received:
            raise BlockingIOError
        data, passed = self._open.received[0]
        mine = [NodeSocket(self._table, self.process, one) for one in passed]
        if not flags & socket.MSG_PEEK:
            self._open.received.popleft()
            for one in passed:
                one.passing -= 1
        numbers = array.array("i", [one.fileno() for one in mine]).tobytes()
        return data[:size], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)] if mine else [], 0, None

    def check(self) -> None:
        """The loop of its process waits for messages: one may be there."""
        if self._open.received and self._number:
            self._table.world.later(_LOCAL, self._poll, process=self.process)

    def _poll(self) -> None:
        if self._open.received and not self._closed:
            self.serve()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._open.descriptors.remove(self)
        del self._table.descriptors[self.process][self]
        if self._open.peer is not None and self._open in self._open.peer.clients:
            self._open.peer.clients.remove(self._open)
        self._open.drop()


class SocketTable:
    """All unix sockets of a node that are modelled. `names`: those that are bound."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names: dict[str, _Open] = {}
        self.descriptors: dict[Process, dict[NodeSocket, None]] = {}
        self.inodes = count(1)
        self.on_change: Callable[[Process | None, str, bool], None] = lambda process, name, is_bound: None
        """Called before a process binds a name, and after a name is free again."""
        self._pids: dict[Process, int] = {}

    def pid_of(self, process: Process) -> int:
        """Return the id of a process: none that this machine could have."""
        return self._pids.setdefault(process, (1 << 24) + len(self._pids))

    def by_number(self, number: int) -> NodeSocket:
        """Return the socket with this number."""
        found = self.world.socket(number)
        assert isinstance(found, NodeSocket)
        return found

    def listing(self) -> io.BytesIO:
        """Return the lines of /proc/net/unix."""
        lines = [
            f"0: 2 0 00010000 0001 01 {one.inode} @{name[1:]}\n"
            for name, one in self.names.items()
            if name.startswith("\0") and one.listener
        ]
        return io.BytesIO("".join(lines).encode())

    def announced(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the names with this prefix, without it, and who listens there."""
        start = "\0" + prefix
        return (
            (name[len(start) :], one.listener) for name, one in self.names.items() if name.startswith(start)
        )

    def close_all(self, process: Process) -> None:
        """A process has ended: the system closes its descriptors."""
        for one in list(self.descriptors.get(process, ())):
            one.close()


class ProcessRuntime(AgentRuntime):
    """What a process of the node takes from it."""

    def __init__(self, clock: SimulatedRuntime, table: SocketTable, process: Process) -> None:
        super().__init__(clock.random)
        self._clock, self._table, self._process = clock, table, process
        self.monotonic, self.time, self.sleep = clock.monotonic, clock.time, clock.sleep  # type: ignore[method-assign]

    def pid(self) -> int:
        return self._table.pid_of(self._process)

    def unix_socket(self, kind: int = socket.SOCK_STREAM) -> NodeSocket:  # type: ignore[override]
        return NodeSocket(self._table, self._process)

    def received_socket(self, descriptor: int) -> NodeSocket:  # type: ignore[override]
        return self._table.by_number(descriptor)

    def socket_table(self) -> io.BytesIO:
        return self._table.listing()
