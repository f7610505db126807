"""Notices when a lease of the node is released. The names of leases are read much faster than the GPUs are sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, Set

from . import lease

if TYPE_CHECKING:
    from ...loop import Loop, Timer

INTERVAL = 0.5
"""Seconds between two looks, at least."""
_PAUSE = 30
"""A pause is at least this many times as long as a look: a node may have very many sockets."""


class ReleaseWatch:
    """Calls `on_release` soon after any user of the node has released a lease, from `start` until `stop`."""

    def __init__(self, loop: Loop, on_release: Callable[[], None]) -> None:
        self._loop = loop
        self._on_release = on_release
        self._timer: Optional[Timer] = None
        self._leased: Set[str] = set()

    def start(self) -> None:
        """Begin to watch."""
        self.stop()
        self._leased = set(lease.leased_uuids())
        self._timer = self._loop.later(INTERVAL, self._look)

    def stop(self) -> None:
        """Watch no more; harmless when repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        begin = self._loop.time()
        before, self._leased = self._leased, set(lease.leased_uuids())
        pause = _PAUSE * (self._loop.time() - begin)
        self._timer = self._loop.later(max(INTERVAL, pause), self._look)
        if before - self._leased:
            self._on_release()
