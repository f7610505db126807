"""GPU leases: each GPU has at most one holder among the kernels of all users of the node.

A lease is a listening abstract unix socket whose name contains the GPU's UUID. Only one process can bind the name, and
the system frees it when that process ends, also by SIGKILL. A process that connects learns the holder's pid and uid
from the system. Of what the holder itself tells, the id and the time are validated, and the rest is believed only of
the same user's processes.

Limits: abstract names belong to a network namespace, so a container with its own namespace does not see our leases,
nor do we see its leases; there only the samples protect a GPU. And leases bind only programs that use them.

This module does not know nvidia-smi, which GPUs count as free, or kernels.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import socket
import struct
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from ...wire.runtime import Runtime
from ...wire.texts import one_line
from .. import procfs
from ..paths import is_kernel_id

_PREFIX = "\0jupyter-gpu-kernel/lease/"
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid
_MAX_ANSWERS = 32  # per turn of the holder's event loop
_MAX_JSON = 4096  # bytes
_STATES = ("starting", "waiting", "idle", "busy", "ended")
_CLOCK_TOLERANCE = 2.0  # seconds

Details = Callable[[], Mapping[str, Any]]
"""Returns what a holder tells only the same user's processes: {"notebook", "state", "state_since"}."""


class Holder(NamedTuple):
    """The holder of a lease.

    `user`, `uid` and `pid` come from the system, `id` and `since` from the holder, if they are plausible. The rest is
    known only of one's own kernels.
    """

    user: str
    pid: int  # 0 in another pid namespace
    id: str  # JUPYTER_GPU_KERNEL_ID; "?" if unknown
    since: Optional[float]  # seconds since the epoch
    uid: int = -1  # -1: unknown
    yours: bool = False
    notebook: str = ""
    state: str = ""
    state_since: Optional[float] = None

    def __str__(self) -> str:
        if self.yours and self.id == "?":
            return f"leased by your process {self.pid or '?'}, which does not answer"
        since = f"since {_date(self.since)}" if self.since else ""
        if self.yours:
            state = self.state + (
                f" since {_date(self.state_since)}" if self.state and self.state_since else ""
            )
            return (
                f"leased by your kernel {self.id}{_in_parentheses(self.notebook, since, state)}; "
                f"to free it: jupyter gpu-kernel stop {self.id}"
            )
        user = "an unknown process" if self.uid < 0 else self.user
        kernel = f"kernel {self.id}" if self.id != "?" else ""
        pid = f"pid {self.pid}" if self.pid else ""
        return f"leased by {user}{_in_parentheses(kernel, pid, since)}"


class Lease:
    """The lease of a GPU, held until `release` or the end of this process. Child processes do not inherit it."""

    def __init__(
        self, uuid: str, listener: socket.socket, identity: Mapping[str, Any], details: Details
    ) -> None:
        """`identity`: {"id", "since"}, which everybody may know; `details`: for the same user's processes only."""
        self.uuid = uuid
        self._listener = listener
        self._identity = identity
        self._details = details

    def fileno(self) -> int:
        """The socket's descriptor. When it is readable, call `answer`."""
        return self._listener.fileno()

    def answer(self) -> None:
        """Answer the processes that have connected. Never blocks."""
        for _ in range(_MAX_ANSWERS):
            try:
                client, _address = self._listener.accept()
            except OSError:  # no more clients, or no descriptors left: the client knows our pid anyway
                return
            with client, contextlib.suppress(OSError):  # the client has ended
                client.setblocking(False)
                client.send(self._answer_to(_credentials(client)[1]))

    def release(self) -> None:
        """Release the lease; harmless when repeated."""
        self._listener.close()

    def _answer_to(self, uid: int) -> bytes:
        """What a process of this user is told."""
        details = dict(self._details()) if uid == os.getuid() else {}
        return json.dumps({**details, **self._identity}).encode()


class LeaseTaker:
    """Takes leases for one kernel. Others see the calling process as the holder."""

    def __init__(self, runtime: Runtime, identity: Mapping[str, Any], details: Details = dict) -> None:
        """`identity`: {"id": …}, which everybody may know; `details`: for the same user's processes only."""
        self._runtime = runtime
        self._identity = identity
        self._details = details

    def take(self, uuid: str) -> Optional[Lease]:
        """Take the lease of this GPU; None if another process holds it."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(_PREFIX + uuid)
            listener.listen(_MAX_ANSWERS)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        return self._lease(uuid, listener)

    def take_all(self, uuids: Iterable[str]) -> Optional[List[Lease]]:
        """Take all of these leases or, if one is held already, none: two kernels with half of them each would
        deadlock."""
        leases: List[Lease] = []
        for uuid in uuids:
            lease = self.take(uuid)
            if lease is None:
                release_all(leases)
                return None
            leases.append(lease)
        return leases

    def take_over(self, listener: socket.socket) -> Lease:
        """Take over the lease of another process, by its socket. Raises ValueError for any other socket."""
        name = listener.getsockname()
        prefix = _PREFIX.encode()
        if not isinstance(name, bytes) or not name.startswith(prefix):
            raise ValueError("the socket is not a lease")
        listener.setblocking(False)
        listener.listen(_MAX_ANSWERS)  # from now on the system names this process as the holder
        return self._lease(name[len(prefix) :].decode(), listener)

    def _lease(self, uuid: str, listener: socket.socket) -> Lease:
        since = round(self._runtime.time(), 1)
        return Lease(uuid, listener, {"since": since, **self._identity}, self._details)


def release_all(leases: Iterable[Lease]) -> None:
    """Release all of them."""
    for lease in leases:
        lease.release()


# -------------------------------------------------------------------------------------- readers


class LeaseReader:
    """Reads leases, repeatedly. A holder that does not answer (stopped, busy, or hostile) counts all the same, but only
    the first `read` waits for its answer."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._silent: Set[Tuple[str, int]] = set()  # (uuid, pid) of holders that did not answer last time

    def read(self, uuids: Iterable[str], timeout: float = 0.3) -> Dict[str, Holder]:
        """Return the holders of the leased GPUs among these. Blocks for up to `timeout` seconds in all."""
        holders: Dict[str, Holder] = {}
        deadline = self._runtime.monotonic() + timeout
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for uuid in uuids:
                client = stack.enter_context(
                    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                )
                error = client.connect_ex(_PREFIX + uuid)
                if error == 0:
                    holders[uuid] = self._holder(client, b"")
                    selector.register(client, selectors.EVENT_READ, (uuid, client))
                elif error == errno.EAGAIN:  # the holder's queue of connections is full
                    holders[uuid] = Holder("?", 0, "?", None)
            waiting = {(key.data[0], holders[key.data[0]].pid) for key in selector.get_map().values()}
            while waiting:
                wait = max(0.0, deadline - self._runtime.monotonic()) if waiting - self._silent else 0.0
                ready = selector.select(wait)
                if not ready:
                    break
                for key, _ in ready:
                    selector.unregister(key.fileobj)
                    uuid, client = key.data
                    waiting.discard((uuid, holders[uuid].pid))
                    holders[uuid] = self._holder(client, _receive(client))
            self._silent = waiting
        return holders

    def _holder(self, client: socket.socket, answer: bytes) -> Holder:
        pid, uid, _ = _credentials(client)
        told, now = _json_object(answer), self._runtime.time()
        kernel, begin = told.get("id"), procfs.start_time(pid) or procfs.boot_time()
        name = kernel if isinstance(kernel, str) and is_kernel_id(kernel) else "?"
        since, yours = _time(told.get("since"), begin, now), uid == os.getuid()
        known = Holder(procfs.user_name(uid), pid, name, since, uid, yours)
        if not yours:
            return known
        notebook, state = told.get("notebook"), told.get("state")
        return known._replace(
            notebook=one_line(notebook) if isinstance(notebook, str) else "",
            state=state if state in _STATES else "",
            state_since=_time(told.get("state_since"), procfs.boot_time(), now),
        )


def _receive(client: socket.socket) -> bytes:
    try:
        return client.recv(_MAX_JSON)  # the holder sends once, and a unix socket delivers that in one piece
    except OSError:
        return b""


def _credentials(sock: socket.socket) -> Tuple[int, int, int]:
    """(pid, uid, gid) of the other end, from the system."""
    pid, uid, gid = _CREDENTIALS.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return pid, uid, gid


def _json_object(data: bytes) -> Mapping[str, Any]:
    """The JSON object in `data`; {} for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _time(value: Any, earliest: float, now: float) -> Optional[float]:
    """`value`, if it is a time between `earliest` and now."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    plausible = earliest - _CLOCK_TOLERANCE <= value <= now + _CLOCK_TOLERANCE
    return float(value) if plausible else None


def _in_parentheses(*facts: str) -> str:
    known = ", ".join(fact for fact in facts if fact)
    return f" ({known})" if known else ""


def _date(seconds: Optional[float]) -> str:
    return time.strftime("%b %d %H:%M", time.localtime(seconds))
