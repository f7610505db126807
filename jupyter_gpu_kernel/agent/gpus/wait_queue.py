"""The queue of the kernels of all users that wait for this node's GPUs.

Nobody keeps the queue. A kernel that waits announces it in the name of a socket, and every keeper computes from these
names whose turn it is (turns.py). As with leases, it is an agreement among those who use this package.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional

from .. import procfs
from ..paths import is_kernel_id
from . import announcements
from .announcements import Announcement, AnnouncementReader
from .lease import Holder, plausible_time
from .turns import Waiting, waiting_before

if TYPE_CHECKING:  # attach, which shows the queue, runs without pyzmq
    from ..loop import Loop

PRIORITIES = range(-99, 100)
_PREFIX = "jupyter-gpu-kernel/wait/"
_NAME = re.compile(r"([0-9a-f]{11})\.([1-9]\d?)\.(-?\d{1,2})\.([0-9a-f]{1,16})\.(.{1,48})")
_ID_LENGTH = 48  # so that a name has 107 bytes at the most
_MAX_INDEX = 63
_MOST = 1000


class WaitQueue:
    """A kernel's place in the queue: `join` once, ask `before` at each attempt, then `leave`."""

    def __init__(self, loop: Loop, kernel_id: str, priority: int = 0) -> None:
        self._loop = loop
        self._me = Waiting(kernel_id[:_ID_LENGTH], os.getuid(), 0.0, 0, priority)
        self._announcement: Optional[Announcement] = None
        self._reader = AnnouncementReader(loop.runtime, _PREFIX)

    @property
    def priority(self) -> int:
        """The kernel's priority among its user's kernels."""
        return self._me.priority

    def join(self, count: int) -> None:
        """Wait for `count` GPUs; a kernel that waits already keeps its place."""
        if self._announcement is None:
            now = round(self._loop.runtime.time(), 3)
            self._announce(self._me._replace(since=now, gpus=count))

    def set_priority(self, priority: int) -> None:
        """Change the priority, also while the kernel waits."""
        self._change(self._me._replace(priority=priority))

    def set_usable(self, indices: Iterable[int]) -> None:
        """Tell the others which GPUs this kernel can use, so that they do not leave others unused for it."""
        self._change(
            self._me._replace(usable=sum(1 << index for index in set(indices) if index <= _MAX_INDEX))
        )

    def before(self, leases: Mapping[str, Holder]) -> List[Waiting]:
        """Return the kernels that get GPUs before this one, in their order. Never blocks."""
        if self._announcement is None:
            return []
        me = self._me
        waiting = read_waiting(self._reader, self._loop.runtime.time())
        others = [one for one in waiting if (one.kernel_id, one.uid) != (me.kernel_id, me.uid)]
        return waiting_before(me.kernel_id, [*others, me], held_by_user(leases))

    def leave(self) -> None:
        """Leave the queue; harmless when repeated."""
        if self._announcement is not None:
            self._loop.forget(self._announcement.fileno())
            self._announcement.close()
            self._announcement = None

    def _change(self, changed: Waiting) -> None:
        if changed != self._me and self._announcement is not None:
            self._announce(changed)
        self._me = changed

    def _announce(self, me: Waiting) -> None:
        """Announce the place, instead of an earlier announcement. Where that fails, the others do not wait for us."""
        self._me = me
        facts = (round(me.since * 1000), me.gpus, me.priority, me.usable, me.kernel_id)
        listener = announcements.bind(_PREFIX + "%011x.%d.%d.%x.%s" % facts)
        if listener is not None:
            self.leave()
            self._announcement = Announcement(listener, {}, dict)
            self._loop.watch(listener.fileno(), lambda _: self._answer())

    def _answer(self) -> None:
        if self._announcement is not None:
            self._announcement.answer()


def read_waiting(reader: AnnouncementReader, now: float) -> List[Waiting]:
    """Return the kernels that wait, of all users. Names that no keeper would announce are ignored. Never blocks."""
    found = []
    for name, answer in reader.read(announcements.names(_PREFIX, _MOST), timeout=0.0).items():
        match = _NAME.fullmatch(name)
        if match and is_kernel_id(match[5]) and answer.uid >= 0 and procfs.is_running(answer.pid):
            # Who tells a time that cannot be true is the last.
            since = plausible_time(int(match[1], 16) / 1000, answer.pid, now) or math.inf
            count, priority, usable = int(match[2]), int(match[3]), int(match[4], 16)
            found.append(Waiting(match[5], answer.uid, since, count, priority, usable))
    return found


def held_by_user(leases: Mapping[str, Holder]) -> Dict[int, int]:
    """Return how many GPUs each user (uid) has leased."""
    return dict(Counter(holder.uid for holder in leases.values()))
