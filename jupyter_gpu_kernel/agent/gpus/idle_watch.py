"""Since when processes that use GPUs have done no work, as far as several samples over time show it.

A process without a lease tells nothing. But if its GPU's utilization is 0 whenever it is sampled, and it has used
hardly any CPU time in between, it has done no work. Nothing is known of the time before the first sample.
"""

from __future__ import annotations

import threading
from typing import Dict, FrozenSet, NamedTuple, Optional, Sequence, Tuple

from .devices.gpu import Gpu
from .sharing.lease import IDLE_AFTER

_SHARE, _BURST = 0.005, 2.0
"""The share of one CPU, and the seconds of CPU time beside it, up to which processes count as idle."""
_Users = FrozenSet[Tuple[int, Optional[float]]]


class _Seen(NamedTuple):
    users: _Users  # pid and start of each process
    since: float  # the first sample that shows them idle
    cpu: float  # their CPU time then


class IdleWatch:
    """Call `add` with each sample; for several threads. It keeps one entry for each GPU."""

    def __init__(self) -> None:
        self._seen: Dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def add(self, now: float, gpus: Sequence[Gpu]) -> Dict[str, float]:
        """Return since when (in seconds since the epoch, as `now`) the processes of each GPU have been idle, by the
        GPU's UUID, if that is long ago."""
        with self._lock:
            seen = ((gpu.uuid, self._look(now, gpu)) for gpu in gpus)
            self._seen = {uuid: one for uuid, one in seen if one is not None}
            return {uuid: one.since for uuid, one in self._seen.items() if now - one.since >= IDLE_AFTER}

    def _look(self, now: float, gpu: Gpu) -> Optional[_Seen]:
        times = [process.cpu_seconds for process in gpu.processes if process.cpu_seconds is not None]
        if not times or len(times) < len(gpu.processes) or gpu.utilization:
            return None
        new = _Seen(frozenset((process.pid, process.since) for process in gpu.processes), now, sum(times))
        old = self._seen.get(gpu.uuid)
        if old is None or not _same(old.users, new.users) or now < old.since:
            return new
        return old if new.cpu - old.cpu <= _BURST + _SHARE * (now - old.since) else new


def _same(old: _Users, new: _Users) -> bool:
    """Whether these are the same processes. Their starts are computed from the clock, which may be set."""
    starts = dict(old)
    return starts.keys() == dict(new).keys() and all(
        abs((start or 0) - (starts[pid] or 0)) < 1 for pid, start in new
    )
