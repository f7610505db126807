"""Announcements: what one process tells every process of the node, of all users, as long as it lives.

An announcement is a listening abstract unix socket. Only one process can bind its name, and the system frees it when
that process ends, also by SIGKILL. A process that connects learns the pid and uid of the other from the system;
everything else is only what the other process says, and its reader validates that.

Limits: abstract names belong to a network namespace, so a container with its own namespace sees none of ours.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import socket
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ...system import procfs
from ...system.agent_runtime import AgentRuntime, Owner, peer
from .socket_owner import find_owners, rows

if TYPE_CHECKING:  # attach, which reads announcements, runs without pyzmq
    from ...system.loop import Loop

Details = Callable[[], Mapping[str, Any]]
"""Returns what an announcement reports to processes of the same user only."""

MAX_CONNECTIONS = 32
"""How many processes are answered in one turn of the event loop."""
_MAX_JSON = 4096  # bytes
_MOST = 1000  # names
_BATCH = 64  # connections at a time


class Announcement:
    """An announcement of this process, until `close`. Child processes do not inherit it."""

    def __init__(
        self,
        listener: socket.socket,
        report: Callable[[bool], Mapping[str, Any]],
        loop: Optional[Loop] = None,
    ) -> None:
        """Announce with a socket that `bind` or `take_over` has returned.

        report: report(True) returns what processes of the same user get, and report(False) what all others get.
        loop: The event loop on which processes that ask are answered; without one the caller has to call `answer`.
        """
        self._listener = listener
        self._report = report
        self._loop = loop
        if loop is not None:
            loop.watch(listener.fileno(), lambda _: self.answer())

    def fileno(self) -> int:
        """Return the socket's descriptor; -1 after `close`."""
        return self._listener.fileno()

    def answer(self) -> None:
        """Answer the processes that have connected. Never blocks."""
        for _ in range(MAX_CONNECTIONS):
            try:
                client, _address = self._listener.accept()
            except OSError:  # no more clients, or no descriptors left: the client knows our pid anyway
                return
            with client, contextlib.suppress(OSError):  # the client has ended
                client.setblocking(False)
                client.send(json.dumps(self._report(peer(client).uid == os.getuid())).encode())

    def close(self) -> None:
        """Withdraw the announcement; harmless when repeated."""
        if self._loop is not None and self.fileno() >= 0:
            self._loop.forget(self.fileno())
        self._listener.close()


def bind(runtime: AgentRuntime, name: str) -> Optional[socket.socket]:
    """Return a socket that listens under this name; None if another process has the name."""
    listener = runtime.unix_socket()
    try:
        listener.bind("\0" + name)
        listener.listen(MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return listener


def take_over(listener: socket.socket, *prefixes: str) -> str:
    """Announce with a socket that another process has passed. Return the socket's name without its prefix.

    Raises ValueError for any other socket.
    """
    name = listener.getsockname()
    for start in [b"\0" + prefix.encode() for prefix in prefixes]:
        if isinstance(name, bytes) and name.startswith(start):
            listener.setblocking(False)
            listener.listen(MAX_CONNECTIONS)  # from now on the system names this process
            return name[len(start) :].decode()
    raise ValueError(f"the socket is none of {prefixes}")


class Announced(NamedTuple):
    """The process that announces; pid 0, uid -1: unknown. `details`: what it says, {} if it does not answer."""

    pid: int
    uid: int
    details: Mapping[str, Any]


_UNKNOWN = Announced(0, -1, {})


class AnnouncementReader:
    """Reads the announcements with a prefix and a name that matches a pattern, repeatedly. Names lack the prefix.

    `owners` connects once to each socket: many processes that read each other all the time do not keep each other busy.
    A process that does not answer (stopped, busy, or hostile) is reported by `read` all the same.
    """

    def __init__(self, runtime: AgentRuntime, prefix: str, pattern: re.Pattern[str]) -> None:
        self._runtime = runtime
        self._prefix = prefix
        self._pattern = pattern
        self._known: Dict[Tuple[str, int], Owner] = {}  # by name and inode

    def names(self) -> List[str]:
        """Return what is announced, but no more than a limit. Never blocks."""
        return [name for name, _ in self._listed()]

    def owners(self) -> Dict[str, Owner]:
        """Return the owners of the announcements; those that cannot be known now are left out. Never blocks."""
        found: Dict[Tuple[str, int], Owner] = {}
        for name, inode in self._listed():
            owner = self._known.get((name, inode))
            if owner is None or procfs.has_ended(owner.pid):  # the socket may have been passed on
                owner = self._ask(name) or owner
            if owner is not None:
                found[name, inode] = owner
        self._known = found
        return {name: owner for (name, _), owner in found.items()}

    def read(self, names: List[str], timeout: float = 0.3) -> Dict[str, Announced]:
        """Return those of these names that are announced. Blocks for up to `timeout` seconds."""
        answers: Dict[str, Announced] = {}
        deadline = self._runtime.monotonic() + timeout
        for at in range(0, len(names), _BATCH):  # a process has no more than 1024 descriptors by default
            answers.update(self._read_batch(names[at : at + _BATCH], deadline))
        return answers

    def _listed(self) -> List[Tuple[str, int]]:
        """The name and inode of each announcement."""
        start = self._prefix.encode()
        listening = (row for row in rows(self._runtime, start) if row.listening)
        found = ((row.name[len(start) :].decode("ascii", "replace"), row.inode) for row in listening)
        return list(itertools.islice((one for one in found if self._pattern.fullmatch(one[0])), _MOST))

    def _read_batch(self, names: List[str], deadline: float) -> Dict[str, Announced]:
        answers: Dict[str, Announced] = {}
        asked: List[Tuple[str, socket.socket]] = []
        refused: List[str] = []
        with contextlib.ExitStack() as stack:
            for name in names:
                client = stack.enter_context(self._runtime.unix_socket())
                error = client.connect_ex("\0" + self._prefix + name)
                if error == 0:
                    answers[name] = Announced(*peer(client), {})
                    asked.append((name, client))
                else:  # no socket has the name; or one that is bound but does not listen, or has a full queue
                    refused.append(name)
                    if error == errno.EAGAIN:
                        answers[name] = _UNKNOWN
            for name, owner in find_owners(self._runtime, self._prefix, refused).items():
                answers[name] = Announced(*owner, {})
            for name, client in asked:
                client.settimeout(max(0.0, deadline - self._runtime.monotonic()))
                with contextlib.suppress(BlockingIOError, socket.timeout):
                    answers[name] = answers[name]._replace(details=_receive(client))
        return answers

    def _ask(self, name: str) -> Optional[Owner]:
        """The owner of an announcement; None if there is none any more, or no descriptors are left."""
        with contextlib.suppress(OSError), self._runtime.unix_socket() as client:
            if client.connect_ex("\0" + self._prefix + name) == 0:
                return peer(client)
        return None


def _receive(client: socket.socket) -> Mapping[str, Any]:
    """Return the JSON object that was sent; {} for anything else. Raises BlockingIOError or socket.timeout if nothing
    has come in time."""
    try:
        # The object is sent once, and a unix socket delivers it in one piece.
        value = json.loads(client.recv(_MAX_JSON))
    except (ConnectionError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
