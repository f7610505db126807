"""Leases: which of our users' kernels has a GPU, known to all users of the node without a file or a right.

A lease is a listening abstract unix socket named by the GPU's UUID. Only one process can bind the name; the
kernel frees it with the holder's last breath, SIGKILL included; and whoever connects learns the holder's pid
and uid from the operating system. What the holder says of itself is taken from its own user alone, but for an id and
a time, which are checked. Its limit: abstract names belong to a network namespace: containers with
one of their own do not see our leases, nor we theirs; there only the measurements protect. And a lease
binds only who asks for it.

Must not know nvidia-smi, what "free" means, or kernels.
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

from .. import procfs
from ..paths import is_kernel_id
from .nvidia_smi_csv import clean, user_name

_PREFIX = "\0jupyter-gpu-kernel/lease/"
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid
_MOST_ANSWERS = 32  # per turn of the holder's poll loop, whoever may be knocking
_LIMIT = 4096  # bytes of JSON
_STATES = ("starting", "waiting", "idle", "busy", "ended")
_SKEW = 2.0  # seconds by which a time may be wrong

Details = Callable[[], Mapping[str, Any]]
"""What a holder tells its own user alone: {"notebook", "state", "state_since"}."""


class Holder(NamedTuple):
    """Who has a lease. `user`, `uid` and `pid` are the system's word; `id` and `since` the holder's own, if they can
    be true; the rest is known of one's own kernels only."""

    user: str
    pid: int  # 0 where it lives in another pid namespace
    id: str  # JUPYTER_GPU_KERNEL_ID; "?" if it did not say
    since: Optional[float]  # seconds since the epoch
    uid: int = -1  # -1: not known
    yours: bool = False
    notebook: str = ""
    state: str = ""
    state_since: Optional[float] = None

    def __str__(self) -> str:
        since = f"since {_moment(self.since)}" if self.since else ""
        if not self.yours:
            user = "a process that cannot be asked" if self.uid < 0 else self.user
            kernel, pid = self.id != "?" and f"kernel {self.id}", self.pid and f"pid {self.pid}"
            facts = ", ".join(fact for fact in (kernel, pid, since) if fact)
            return f"leased by {user}" + (f" ({facts})" if facts else "")
        if self.id == "?":
            return f"yours: process {self.pid or '?'} has it, and does not answer"
        of = f" of {self.notebook}" if self.notebook else ""
        now = f" and is {self.state}" if self.state else ""
        now += f" since {_moment(self.state_since)}" if now and self.state_since else ""
        has = f"kernel {self.id}{of} has it{' ' + since if since else ''}{now}"
        return f"yours: {has}; to free it: jupyter gpu-kernel stop {self.id}"


class Lease:
    """A GPU that is ours until `release` or our death. Programs that we start do not inherit it."""

    def __init__(
        self, uuid: str, listener: socket.socket, who: Mapping[str, Any], details: Optional[Details]
    ) -> None:
        self.uuid = uuid
        self._listener = listener
        self._who = dict(who)
        self._details = details or dict

    @classmethod
    def take(cls, uuid: str, who: Mapping[str, Any], details: Optional[Details] = None) -> Optional[Lease]:
        """The lease, or None when somebody has it. `who` is told to whoever asks: {"id": …}.

        Take it in the process that will live: others see the pid of the process that called this.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(_PREFIX + uuid)
            listener.listen(_MOST_ANSWERS)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        return cls(uuid, listener, {"since": round(time.time(), 1), **who}, details)

    @classmethod
    def of_socket(
        cls, listener: socket.socket, who: Mapping[str, Any], details: Optional[Details] = None
    ) -> Lease:
        """The lease that another process of ours held, by its socket. ValueError for any other socket."""
        name = listener.getsockname()
        prefix = _PREFIX.encode()
        if not isinstance(name, bytes) or not name.startswith(prefix):
            raise ValueError("the socket is no lease")
        listener.setblocking(False)
        listener.listen(_MOST_ANSWERS)  # from now on the system names this process to whoever asks
        return cls(name[len(prefix) :].decode(), listener, {"since": round(time.time(), 1), **who}, details)

    def fileno(self) -> int:
        """Readable when somebody asks: call `answer`."""
        return self._listener.fileno()

    def answer(self) -> None:
        """Tells everybody who asks. Never blocks."""
        for _ in range(_MOST_ANSWERS):
            try:
                asker, _address = self._listener.accept()
            except OSError:  # nobody is left, or we are short of descriptors: the asker has our pid anyway
                return
            with asker, contextlib.suppress(OSError):  # gone already, which is the asker's affair
                asker.setblocking(False)
                asker.send(self._words(_credentials(asker)[1]))

    def release(self) -> None:
        """Gives the GPU back; again is harmless."""
        self._listener.close()

    def _words(self, asker: int) -> bytes:
        """`asker`: the uid of who asks."""
        private = dict(self._details()) if asker == os.getuid() else {}
        return json.dumps({**private, **self._who}).encode()


def take_all(
    uuids: Iterable[str], who: Mapping[str, Any], details: Optional[Details] = None
) -> Optional[List[Lease]]:
    """A lease of each or none at all: two who wait for each other's half would wait for ever."""
    leases: List[Lease] = []
    for uuid in uuids:
        lease = Lease.take(uuid, who, details)
        if lease is None:
            release_all(leases)
            return None
        leases.append(lease)
    return leases


def release_all(leases: Iterable[Lease]) -> None:
    """Gives them all back."""
    for lease in leases:
        lease.release()


def read_leases(uuids: Iterable[str], timeout: float = 0.3) -> Dict[str, Holder]:
    """The holders of those GPUs that somebody has leased. Blocks up to `timeout` seconds in all."""
    return LeaseReader().read(uuids, timeout)


class LeaseReader:
    """`read` as often as needed. A holder that says nothing (stopped, busy, or hostile) holds its lease all the same,
    but is waited for only once."""

    def __init__(self) -> None:
        self._silent: Set[Tuple[str, int]] = set()

    def read(self, uuids: Iterable[str], timeout: float = 0.3) -> Dict[str, Holder]:
        """The holders of those GPUs that somebody has leased. Blocks up to `timeout` seconds in all."""
        holders: Dict[str, Holder] = {}
        deadline = time.monotonic() + timeout
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for uuid in uuids:
                asker = stack.enter_context(
                    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                )
                error = asker.connect_ex(_PREFIX + uuid)
                if error == 0:
                    holders[uuid] = _holder(asker, b"")
                    selector.register(asker, selectors.EVENT_READ, (uuid, asker))
                elif error == errno.EAGAIN:  # so many ask that there is no room in its queue
                    holders[uuid] = Holder("?", 0, "?", None)
            waiting = {(key.data[0], holders[key.data[0]].pid) for key in selector.get_map().values()}
            while waiting:
                wait = max(0.0, deadline - time.monotonic()) if waiting - self._silent else 0.0
                ready = selector.select(wait)
                if not ready:
                    break
                for key, _ in ready:
                    selector.unregister(key.fileobj)
                    uuid, asker = key.data
                    waiting.discard((uuid, holders[uuid].pid))
                    holders[uuid] = _holder(asker, _received(asker))
            self._silent = waiting
        return holders


def _received(asker: socket.socket) -> bytes:
    try:
        return asker.recv(_LIMIT)  # one send of the holder, which a unix socket hands over whole
    except OSError:
        return b""


def _credentials(sock: socket.socket) -> Tuple[int, int, int]:
    """(pid, uid, gid) of the other end, by the system's word."""
    pid, uid, gid = _CREDENTIALS.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return pid, uid, gid


def _holder(asker: socket.socket, words: bytes) -> Holder:
    pid, uid, _ = _credentials(asker)
    said = _said(words)
    kernel, begin = said.get("id"), procfs.start_time(pid) or procfs.boot_time()
    name = kernel if isinstance(kernel, str) and is_kernel_id(kernel) else "?"
    known = Holder(user_name(uid), pid, name, _time(said.get("since"), begin), uid, uid == os.getuid())
    if not known.yours:
        return known
    notebook, state = said.get("notebook"), said.get("state")
    return known._replace(
        notebook=clean(notebook) if isinstance(notebook, str) else "",
        state=state if state in _STATES else "",
        state_since=_time(said.get("state_since"), procfs.boot_time()),
    )


def _said(words: bytes) -> Mapping[str, Any]:
    """The JSON object somebody sent us; {} for anything else."""
    try:
        said = json.loads(words)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _time(said: Any, first: float) -> Optional[float]:
    """What was said, if it is a time between the first that can be and now."""
    if not isinstance(said, (int, float)) or isinstance(said, bool):
        return None
    return float(said) if first - _SKEW <= said <= time.time() + _SKEW else None


def _moment(seconds: Optional[float]) -> str:
    return time.strftime("%b %d %H:%M", time.localtime(seconds))
