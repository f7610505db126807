"""GPU leases: each GPU has at most one holder among the kernels of all users of the node.

A lease is an announcement (announcements.py) whose name contains the GPU's UUID. Of what the holder itself tells, the
id and the time are validated, and the rest is believed only of the same user's processes.

Limits: a container with its own network namespace does not see our leases, nor do we see its leases; there only the
samples protect a GPU. And leases bind only programs that use them.

This module does not know nvidia-smi, which GPUs count as free, or kernels.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from typing import TYPE_CHECKING, Any, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from ....wire.texts import one_line
from ...paths import is_kernel_id
from ...system import procfs
from ...system.agent_runtime import AgentRuntime
from . import announcements
from .announcements import Announced, Announcement, AnnouncementReader, Details

if TYPE_CHECKING:  # attach, which reads leases, runs without pyzmq
    from ...system.loop import Loop

PREFIX = "jupyter-gpu-kernel/lease/"
_STATES = ("starting", "waiting", "idle", "busy", "ended")
IGNORING_PREFIX = "jupyter-gpu-kernel/ignoring-lease/"
"""A lease beside one that its holder ignores. Its name ends with the kernel's id: nobody else has it."""
_ID_LENGTH = 20  # so that a name has 107 bytes at the most
_PUBLIC = ("idle_since",)
_UUID = re.compile(r"[A-Za-z0-9/-]{1,80}")
_IGNORING = re.compile(r"[A-Za-z0-9/-]{1,80}\.[A-Za-z0-9_-]{1,20}")
_NEEDED = ("starting", "waiting", "busy")
_CLOCK_TOLERANCE = 2.0  # seconds
IDLE_AFTER = 600.0
"""Seconds without work from which on it is said since when a holder is idle."""


class Holder(NamedTuple):
    """The holder of a lease.

    `user`, `uid` and `pid` come from the system; `id`, `since` and `idle_since` from the holder, if they are plausible.
    The rest is known only of one's own kernels.
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
    answers: bool = True  # whether the holder answers
    idle_since: Optional[float] = None  # by its own word; None: it works, or did a moment ago

    note: str = ""  # more about this lease, for its text

    def __str__(self) -> str:
        return self._text() + (f"; {self.note}" if self.note else "")

    def _text(self) -> str:
        if self.yours and self.id == "?":
            return f"leased by your process {self.pid or '?'}, which does not answer"
        since = f"since {_date(self.since)}" if self.since else ""
        idle = f"idle since {_date(self.idle_since)}" if self.idle_since else ""
        if self.yours:
            state = self.state + (
                f" since {_date(self.state_since)}" if self.state and self.state_since else ""
            )
            free = "" if self.state in _NEEDED else f"; to free it: “jupyter gpu-kernel stop {self.id}”"
            return f"leased by your kernel {self.id}{_in_parentheses(self.notebook, since, state)}{free}"
        user = "an unknown process" if self.uid < 0 else self.user
        kernel = f"kernel {self.id}" if self.id != "?" else ""
        pid = f"pid {self.pid}" if self.pid else ""
        silent = "" if self.answers else ", which does not answer"
        return f"leased by {user}{_in_parentheses(kernel, pid, since, idle)}{silent}"


class Lease(NamedTuple):
    """The lease of a GPU, held until `release` or the end of this process, unless `LeaseTransfer` keeps it.

    name: The GPU's UUID; followed by "." and the kernel's id if another process has a lease as well, which is ignored.
    announcement: Answers those who ask for the holder. Its socket can be passed to another keeper.
    """

    name: str
    announcement: Announcement

    @property
    def uuid(self) -> str:
        """The UUID of the GPU."""
        return gpu_of(self.name)

    @property
    def ignores_another(self) -> bool:
        """Whether the GPU is used beside the lease of another process."""
        return self.name != self.uuid

    def release(self) -> None:
        """Release the lease; harmless when repeated."""
        self.announcement.close()


class LeaseTaker(NamedTuple):
    """Takes leases for one kernel. Others see the calling process as the holder.

    identity: {"id": …}, which everybody may know.
    details: Return {"notebook", "state", "state_since", "idle_since"}, of which everybody gets the last one.
    ignored: GPUs whose leases may be ignored.
    loop: See `Announcement`.
    """

    runtime: AgentRuntime
    identity: Mapping[str, Any]
    details: Details = dict
    ignored: Collection[str] = ()
    loop: Optional[Loop] = None

    def take(self, uuid: str) -> Optional[Lease]:
        """Take the lease of this GPU; None if another process holds it, unless that lease may be ignored."""
        listener = announcements.bind(self.runtime, PREFIX + uuid)
        if listener is None:
            return self._take_ignoring(uuid) if uuid in self.ignored else None
        if uuid not in self.ignored and self._is_ignored(uuid):
            listener.close()  # the lease that a kernel ignores was released, and that kernel has the GPU
            return None
        return self._lease(uuid, listener)

    def _take_ignoring(self, uuid: str) -> Optional[Lease]:
        name = f"{uuid}.{str(self.identity['id'])[:_ID_LENGTH]}"
        listener = announcements.bind(self.runtime, IGNORING_PREFIX + name)
        return None if listener is None else self._lease(name, listener)

    def _is_ignored(self, uuid: str) -> bool:
        """Whether a kernel has this GPU beside a lease that the kernel ignores."""
        return any(gpu_of(name) == uuid for name in lease_readers(self.runtime)[1].names())

    def take_all(self, uuids: Iterable[str]) -> Optional[List[Lease]]:
        """Take all of these leases or, if one is held already, none: two kernels with half of them each would
        deadlock. Raises OSError if the system refuses a socket; none is held then, either."""
        leases: List[Lease] = []
        with contextlib.ExitStack() as undo:
            for uuid in uuids:
                lease = self.take(uuid)
                if lease is None:
                    return None
                undo.callback(lease.release)
                leases.append(lease)
            undo.pop_all()
        return leases

    def take_over(self, sockets: Iterable[socket.socket]) -> List[Lease]:
        """Take over the leases of another process, by their sockets, and close all other sockets."""
        leases: List[Lease] = []
        for sock in sockets:
            try:
                leases.append(self._lease(announcements.take_over(sock, PREFIX, IGNORING_PREFIX), sock))
            except (ValueError, OSError):
                sock.close()
        return leases

    def _lease(self, name: str, listener: socket.socket) -> Lease:
        facts = {"since": round(self.runtime.time(), 1), **self.identity}

        def report(own: bool) -> Mapping[str, Any]:
            details = self.details()
            return {**(details if own else {key: details[key] for key in _PUBLIC if key in details}), **facts}

        return Lease(name, Announcement(listener, report, self.loop))


def gpu_of(name: str) -> str:
    """Return the GPU's UUID from the name of a lease."""
    return name.partition(".")[0]


def release_all(leases: Iterable[Lease]) -> None:
    """Release all these leases."""
    for lease in leases:
        lease.release()


def lease_readers(runtime: AgentRuntime) -> Tuple[AnnouncementReader, AnnouncementReader]:
    """Return readers of all leases on the node, also of GPUs that we do not see, and of those that ignore another."""
    return (
        AnnouncementReader(runtime, PREFIX, _UUID),
        AnnouncementReader(runtime, IGNORING_PREFIX, _IGNORING),
    )


class LeaseReader:
    """Reads leases, repeatedly. A holder that does not answer (stopped, busy, or hostile) is reported all the same."""

    def __init__(self, runtime: AgentRuntime) -> None:
        self._runtime = runtime
        self._reader, self._ignoring = lease_readers(runtime)

    def read(self, uuids: Collection[str], timeout: float = 0.3) -> Dict[str, Holder]:
        """Return the holders of the leases of these GPUs, by the names of the leases; last those that ignore another
        lease. Blocks for up to `timeout` seconds, and as long again for the last ones."""
        holders = self._holders(self._reader.read(list(uuids), timeout))
        ignoring = [name for name in self._ignoring.names() if gpu_of(name) in uuids]
        for name, holder in self._holders(self._ignoring.read(ignoring, timeout)).items():
            other = holders.get(gpu_of(name))
            holders[name] = holder._replace(note=f"it ignores the lease of {other.user}" if other else "")
        return holders

    def _holders(self, answers: Mapping[str, Announced]) -> Dict[str, Holder]:
        return {name: self._holder(answer) for name, answer in answers.items()}

    def _holder(self, answer: Announced) -> Holder:
        pid, uid, details = answer
        if uid < 0:
            return Holder("?", pid, "?", None, answers=False)
        kernel, yours = details.get("id"), uid == os.getuid()
        name = kernel if isinstance(kernel, str) and is_kernel_id(kernel) else "?"
        since = plausible_time(details.get("since"), pid, self._runtime.time())
        known = Holder(procfs.user_name(uid), pid, name, since, uid, yours, answers=bool(details))
        known = known._replace(idle_since=self._idle_since(details.get("idle_since"), pid))
        if not yours:
            return known
        notebook, state = details.get("notebook"), details.get("state")
        return known._replace(
            notebook=one_line(notebook) if isinstance(notebook, str) else "",
            state=state if state in _STATES else "",
            state_since=plausible_time(details.get("state_since"), 0, self._runtime.time()),
        )

    def _idle_since(self, details: Any, pid: int) -> Optional[float]:
        since = plausible_time(details, pid, self._runtime.time())
        return since if since is not None and self._runtime.time() - since >= IDLE_AFTER else None


def plausible_time(value: Any, pid: int, now: float) -> Optional[float]:
    """Return `value` if it is a time between the start of this process (of the node, if that is unknown) and now."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    earliest = (procfs.start_time(pid) if pid else None) or procfs.boot_time()
    plausible = earliest - _CLOCK_TOLERANCE <= value <= now + _CLOCK_TOLERANCE
    return float(value) if plausible else None


def _in_parentheses(*facts: str) -> str:
    known = ", ".join(fact for fact in facts if fact)
    return f" ({known})" if known else ""


def _date(seconds: Optional[float]) -> str:
    return time.strftime("%b %d %H:%M", time.localtime(seconds))
