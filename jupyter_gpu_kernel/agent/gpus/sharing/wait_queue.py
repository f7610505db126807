"""The queue of the kernels of all users that wait for this node's GPUs.

Nobody keeps the queue. A kernel that waits announces it in the name of a socket, and every keeper computes from these
names whose turn it is (turns.py). As with leases, it is an agreement among those who use this package.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Collection, Dict, Iterable, List, Mapping, Optional, Set

from ....wire.texts import one_line
from ...system import procfs
from ...system.agent_runtime import AgentRuntime, Owner
from . import announcements, lease
from .announcements import Announcement, AnnouncementReader, Details
from .turns import PassedPlaces, WaitingKernel, gpu_bits, in_turn, own_order, waiting_before

if TYPE_CHECKING:  # attach, which reads leases, runs without pyzmq
    from ...system.loop import Loop

_PREFIX = "jupyter-gpu-kernel/wait/"
_NAME = re.compile(
    r"([0-9a-f]{11})\.([0-9a-f]{1,6})\.([1-9][0-9]?)\.(-?[0-9]{1,2})\.([0-9a-f]{1,16})\.([A-Za-z0-9][A-Za-z0-9-]{0,39})"
)
_ID_LENGTH = 40  # so that a name has 107 bytes at the most
_LATEST_TURN = 0xFFFFFF  # seconds after the kernel has begun to wait


class QueueReader:
    """Reads who waits and who holds leases, from the names of sockets and their owners. Never blocks, never raises."""

    def __init__(self, runtime: AgentRuntime) -> None:
        self._runtime = runtime
        self._waiting = AnnouncementReader(runtime, _PREFIX, _NAME)
        self._leases = lease.lease_readers(runtime)

    def read(self) -> List[WaitingKernel]:
        """Return the kernels that wait, of all users. Names that no keeper would announce are ignored."""
        found = []
        for name, (pid, uid) in self._waiting.owners().items():
            match = _NAME.fullmatch(name)
            if match and procfs.is_running(pid):
                announced = lease.plausible_time(int(match[1], 16) / 1000, pid, self._runtime.time())
                since = math.inf if announced is None else announced
                turn = _turn(since, int(match[2], 16))
                gpus, priority, usable = int(match[3]), int(match[4]), int(match[5], 16)
                found.append(WaitingKernel(match[6], uid, since, gpus, priority, usable, pid, turn))
        return found

    def in_order(self) -> List[WaitingKernel]:
        """Return these kernels in the order in which they get GPUs that all of them can use."""
        return in_turn(self.read(), Counter(owner.uid for owner in self.lease_owners()))

    def own_notebooks(self) -> Dict[str, str]:
        """Return the notebooks of this user's kernels that wait, by the kernel's id. Blocks for a moment."""
        own = [
            name
            for name, owner in self._waiting.owners().items()
            if owner.uid == os.getuid() and owner.pid != self._runtime.pid() and procfs.is_running(owner.pid)
        ]
        reports = self._waiting.read(own)
        known = (
            (name.rpartition(".")[2], report.details.get("notebook")) for name, report in reports.items()
        )
        return {kernel_id: one_line(path) for kernel_id, path in known if isinstance(path, str)}

    def lease_owners(self) -> List[Owner]:
        """Return the owner of every lease on the node, also of GPUs that we do not see."""
        return [owner for reader in self._leases for owner in reader.owners().values()]


class WaitQueue:
    """A kernel's place in the queue: `join`, `announce` what it can use, `look` at each attempt, then `leave`."""

    def __init__(
        self,
        loop: Loop,
        kernel_id: str,
        priority: int = 0,
        details: Details = dict,
        ignored_users: Iterable[str] = (),
    ) -> None:
        """`details`: {"notebook": …}, for this user's own processes; `ignored_users`: see PassedPlaces."""
        self._passed = PassedPlaces(ignored_users)
        self._details = details
        self._loop = loop
        pid = loop.runtime.pid()
        self._me = WaitingKernel(kernel_id[:_ID_LENGTH], os.getuid(), 0.0, 0, priority, pid=pid)
        self._announced: Optional[WaitingKernel] = None
        self._had_gpus = False  # whether the user had GPUs at the last look
        self._claiming: Set[int] = set()  # this user's processes that were about to confirm their leases then
        self._announcement: Optional[Announcement] = None
        self._reader = QueueReader(loop.runtime)

    @property
    def has_place(self) -> bool:
        """Whether this kernel waits, and there are GPUs that it could use."""
        return bool(self._me.gpus and self._me.usable)

    def join(self, gpus: int) -> None:
        """Wait for `gpus` GPUs; a kernel that waits already keeps its place."""
        if not self._me.gpus:
            self._me = self._me._replace(since=round(self._loop.runtime.time(), 3), gpus=gpus, turn=0.0)
            self._had_gpus, self._claiming = False, set()

    def set_priority(self, priority: int) -> None:
        """Change the priority, also while the kernel waits."""
        self._me = self._me._replace(priority=priority)
        if self._announced is not None:
            self._announce()

    def announce(self, usable: Iterable[str]) -> None:
        """Let the others know that this kernel waits, and which GPUs (UUIDs) it can use."""
        self._me = self._me._replace(usable=gpu_bits(usable))
        if self._me.gpus and self._me != self._announced:
            self._announce()

    def look(self, leases: Iterable[lease.Holder] = ()) -> List[WaitingKernel]:
        """Return the kernels that get GPUs before this one, in their order, and those that are passed over. Note
        whether the user has GPUs, on which the user's turn depends.

        `leases`: those of the newest sample. A kernel that has its leases already, and is about to confirm them, counts
        until they are in a sample.
        """
        if not self._me.gpus:
            return []
        waiting, owners, now = self._reader.read(), self._reader.lease_owners(), self._loop.runtime.time()
        own = {one.pid for one in owners if one.uid == self._me.uid}
        self._note_holders(own, {one.pid for one in waiting}, now)
        # A kernel that is about to confirm its leases has the turn for which it took them.
        held = Counter(owner.uid for owner in owners if owner.pid != self._me.pid)
        held_by_process = Counter(holder.pid for holder in leases)
        others = [
            one
            for one in waiting
            if (one.kernel_id, one.uid) != (self._me.kernel_id, self._me.uid)
            and one.keeps(now)
            and not (one.pid and held_by_process[one.pid] >= one.gpus)
        ]
        return self._passed.mark(waiting_before(self._me, others, held))

    def note_untaken(self, ahead: List[WaitingKernel], gpus: Collection[str], free: Collection[str]) -> None:
        """Note which GPUs of the node were free while these kernels came first, so that places that nobody takes are
        passed over."""
        self._passed.add(self._loop.runtime.monotonic(), ahead, gpus, free)

    def share_before(self) -> int:
        """Return how many GPUs this user's other kernels have on this node, or get before this one."""
        me, now = self._me, self._loop.runtime.time()
        owners = self._reader.lease_owners()
        held = Counter(owner.pid for owner in owners if owner.uid == me.uid and owner.pid != me.pid)
        own = (one for one in self._reader.read() if one.uid == me.uid and one.kernel_id != me.kernel_id)
        first = (one for one in own if own_order(one) < own_order(me) and one.keeps(now))
        return sum(held.values()) + sum(max(0, one.gpus - held[one.pid]) for one in first)

    def withdraw(self) -> None:
        """Do not hold up others, as this kernel cannot take GPUs at the moment. It keeps its place."""
        if self._announcement is not None:
            self._announcement.close()
        self._announcement = self._announced = None

    def leave(self) -> None:
        """Leave the queue; harmless when repeated."""
        self.withdraw()
        self._me = self._me._replace(gpus=0)

    def _note_holders(self, holders: Set[int], waiting: Set[int], now: float) -> None:
        """Note which processes of the user have leases. One that still waits has them only until it has confirmed that
        nobody else uses their GPUs; if it has neither at the next look, it had the GPUs for a moment."""
        if self._claiming - holders - waiting:
            self._had_gpus = True
        others = holders - {self._me.pid}
        self._note_turn(bool(others - waiting), now)
        self._claiming = others & waiting

    def _note_turn(self, has_gpus: bool, now: float) -> None:
        """If the user had GPUs, and has none now, this kernel comes after those of others that have waited so long."""
        if self._had_gpus and not has_gpus:
            turn = min(_LATEST_TURN, math.ceil(now - self._me.since))
            self._me = self._me._replace(turn=_turn(self._me.since, turn))
            if self._announced is not None:
                self._announce()
        self._had_gpus = has_gpus

    def _announce(self) -> None:
        """Announce the place, instead of an earlier announcement. Where that fails, the others do not wait for us."""
        me = self._me
        turn = max(0, round(me.turn - me.since))
        facts = (round(me.since * 1000), turn, me.gpus, me.priority, me.usable, me.kernel_id)
        try:
            listener = announcements.bind(self._loop.runtime, _PREFIX + "%011x.%x.%d.%d.%x.%s" % facts)
        except OSError:  # no descriptors are left
            listener = None
        self.withdraw()
        if listener is not None:
            self._announcement = Announcement(listener, self._report, self._loop)
            self._announced = me

    def _report(self, own: bool) -> Mapping[str, Any]:
        return self._details() if own else {}


def _turn(since: float, seconds: int) -> float:
    """The time of a turn, from the whole seconds after `since` that are announced; 0: there was none."""
    return since + seconds if seconds else 0.0
