"""Leases: which of our users' kernels has a GPU, known to all users of the node without a file or a right.

A lease is a listening abstract unix socket named by the GPU's UUID. Only one process can bind the name; the
kernel frees it with the holder's last breath, SIGKILL included; and whoever connects learns the holder's pid
and uid from the operating system. Its limit: abstract names belong to a network namespace: containers with
one of their own do not see our leases, nor we theirs; there only the measurements protect. And a lease
binds only who asks for it.

Must not know nvidia-smi, what "free" means, or kernels.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import selectors
import socket
import struct
import time
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional

from .smi_csv import clean, user_name

_PREFIX = "\0jupyter-gpu-kernel/lease/"
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid
_MOST_ANSWERS = 32  # per turn of the holder's poll loop, whoever may be knocking
_LIMIT = 4096  # bytes of JSON


class Holder(NamedTuple):
    """Who has a lease. `user` and `pid` are the system's word, `id` and `since` the holder's own."""

    user: str
    pid: int  # 0 where it lives in another pid namespace
    id: str  # JUPYTER_GPU_KERNEL_ID; "?" if it did not say
    since: Optional[float]  # seconds since the epoch

    def __str__(self) -> str:
        return f"leased by {self.user} (kernel {self.id}, pid {self.pid})"


class Lease:
    """A GPU that is ours until `release` or our death. Programs that we start do not inherit it."""

    def __init__(self, uuid: str, listener: socket.socket, who: Mapping[str, Any]) -> None:
        self.uuid = uuid
        self._listener = listener
        self._words = json.dumps(dict(who)).encode()[:_LIMIT]

    @classmethod
    def take(cls, uuid: str, who: Mapping[str, Any]) -> Optional[Lease]:
        """The lease, or None when somebody has it. `who` is told to whoever asks: {"id": …} and more.

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
        facts = {"user": user_name(os.getuid()), "pid": os.getpid(), "since": round(time.time(), 1)}
        return cls(uuid, listener, {**facts, **who})

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
                asker.send(self._words)

    def release(self) -> None:
        """Gives the GPU back; again is harmless."""
        self._listener.close()


def take_all(uuids: Iterable[str], who: Mapping[str, Any]) -> Optional[List[Lease]]:
    """A lease of each or none at all: two who wait for each other's half would wait for ever."""
    leases: List[Lease] = []
    for uuid in uuids:
        lease = Lease.take(uuid, who)
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
    """The holders of those GPUs that somebody has leased. Blocks up to `timeout` seconds in all.

    A holder that says nothing (stopped, busy, or hostile) holds its lease all the same.
    """
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
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for key, _ in ready:
                selector.unregister(key.fileobj)
                uuid, asker = key.data
                holders[uuid] = _holder(asker, _received(asker))
    return holders


def _received(asker: socket.socket) -> bytes:
    try:
        return asker.recv(_LIMIT)  # one send of the holder, which a unix socket hands over whole
    except OSError:
        return b""


def _holder(asker: socket.socket, words: bytes) -> Holder:
    pid, uid, _gid = _CREDENTIALS.unpack(
        asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    said = _said(words)
    since = said.get("since")
    known = isinstance(since, (int, float)) and math.isfinite(since)
    kernel = said.get("id")
    name = clean(kernel) if isinstance(kernel, str) and kernel else "?"
    return Holder(user_name(uid), pid, name, float(since) if known and since else None)


def _said(words: bytes) -> Mapping[str, Any]:
    """The JSON object somebody sent us; {} for anything else."""
    try:
        said = json.loads(words)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
