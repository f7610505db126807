"""Notices changes while a kernel waits: of leases, of the queue, and that a process which used a GPU has ended.

Names of sockets and processes are read much faster than the GPUs are sampled.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable, Iterable, Optional, Set, Tuple

from ...system import procfs
from .announcements import AnnouncementReader

if TYPE_CHECKING:
    from ...system.loop import Loop, Timer

INTERVAL = 0.5
"""Seconds between two looks, at least."""
_PAUSE = 30
"""A pause is at least this many times as long as a look: a node may have very many sockets."""
_PREFIX = "jupyter-gpu-kernel/"
_NAME = re.compile(r"(lease|ignoring-lease|wait)/.+")
_MOST_PROCESSES = 64


class ReleaseWatch:
    """Calls `on_change` soon after something has changed on the node, whoever did it, from `start` until `stop`."""

    def __init__(
        self, loop: Loop, on_change: Callable[[bool], None], users: Callable[[], Iterable[int]] = tuple
    ) -> None:
        """`on_change(released)`: whether a lease was released, or a process has ended; `users`: returns the ids of the
        processes that use GPUs, as far as they are known."""
        self._loop = loop
        self._announced = AnnouncementReader(loop.runtime, _PREFIX, _NAME)
        self._on_change = on_change
        self._users = users
        self._timer: Optional[Timer] = None
        self._names: Set[str] = set()
        self._running: Set[int] = set()

    def start(self) -> None:
        """Begin to watch."""
        self.stop()
        self._names, self._running = self._read()
        self._timer = self._loop.later(INTERVAL, self._look)

    def stop(self) -> None:
        """Watch no more; harmless when repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read(self) -> Tuple[Set[str], Set[int]]:
        pids = sorted(set(self._users()))[:_MOST_PROCESSES]
        return set(self._announced.names()), {pid for pid in pids if procfs.start_ticks(pid)}

    def _look(self) -> None:
        begin = self._loop.time()
        names, running = self._names, self._running
        self._names, self._running = self._read()
        pause = _PAUSE * (self._loop.time() - begin)
        self._timer = self._loop.later(max(INTERVAL, pause), self._look)
        gone = {name for name in names - self._names if not name.startswith("wait/")}
        if names != self._names or running - self._running:
            self._on_change(bool(gone or running - self._running))
