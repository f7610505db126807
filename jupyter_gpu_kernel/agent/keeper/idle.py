"""When a kernel has been idle for too long, and when a GPU it never used should go back. Decisions only.

Idle: no cell runs, none waits, and nothing in the kernel's process tree works. Counted from the last of these; while
nobody is attached the time is shorter, and counts from their leaving: a lid that is closed for a moment, after a
morning of reading, ends nothing. The keeper asks every minute and does what it is told.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, NamedTuple, Optional

from .. import procfs

DETACHED = 2 * 3600.0
ATTACHED = 12 * 3600.0
UNUSED_GPU = 30 * 60.0
UNNAMED = 5 * 60.0
"""Seconds that replace DETACHED for a kernel without a notebook, to which no front end comes back by itself."""
WORKING = 0.02
"""Share of a processor above which a process tree works: polling loops and heartbeats stay below."""


class Advice(NamedTuple):
    """`end`: why the kernel should end now. `warn`: what to tell before. `give_back`: its GPUs lie unused."""

    end: str = ""
    warn: str = ""
    give_back: bool = False


class IdleTimer:
    """`used()` at every user's doing; `advise(…)` now and then. `now` is a clock that stands still for nobody."""

    def __init__(self, settings: Dict[str, Any], now: Callable[[], float] = time.monotonic) -> None:
        self._detached = float(settings.get("idle_timeout", DETACHED))
        self._attached = float(settings.get("idle_timeout_attached", ATTACHED))
        self._unused = float(settings.get("gpu_timeout", UNUSED_GPU))
        shortest = min(limit for limit in (self._detached, self._attached, self._unused, 300.0) if limit)
        self.tick = max(0.5, shortest / 10)
        """Seconds between questions for advice."""
        self._now = now
        self._last = now()
        self._seen = now()  # when somebody was attached last
        self._warned = False
        self._cpu: Optional[float] = None
        self._cpu_at = now()

    def used(self) -> None:
        """A user did something, or the kernel did something for one."""
        self._last = self._now()
        self._warned = False

    def keeps_ended_kernel(self) -> bool:
        """Whether a kernel that ended unseen is still kept for its front end, as long as an idle one would be."""
        return not self._detached or self._now() - self._last < self._detached

    def advise(
        self, *, busy: bool, attached: bool, cpu: float, has_gpu: bool, cuda_open: bool, named: bool = True
    ) -> Advice:
        """`cpu`: seconds of processor time that the kernel's process tree has used so far; `named`: whether a notebook
        can come back to it."""
        if busy or self._working(cpu):
            self.used()
            return Advice()
        if attached:
            self._seen = self._now()
        detached = self._detached if named else min(self._detached, UNNAMED)
        limit = self._attached if attached else detached
        idle = self._now() - (self._last if attached else max(self._last, self._seen))
        if limit and idle >= limit:
            return Advice(end=f"idle for {_hours(idle)} {'with' if attached else 'without'} a front end")
        give_back = has_gpu and not cuda_open and bool(self._unused) and idle >= self._unused
        if limit and idle >= 0.9 * limit and not self._warned:
            self._warned = True
            return Advice(warn=f"idle for {_hours(idle)}: it ends at {_hours(limit)}", give_back=give_back)
        return Advice(give_back=give_back)

    def _working(self, cpu: float) -> bool:
        now = self._now()
        passed = max(now - self._cpu_at, 1e-6)
        share = 0.0 if self._cpu is None else (cpu - self._cpu) / passed
        self._cpu, self._cpu_at = cpu, now
        return share > WORKING


def tree_cpu(session: int) -> float:
    """Seconds of processor time used by all processes of this session (the kernel leads its own), ended ones of
    them included as far as they were waited for."""
    ticks = 0
    for pid in procfs.pids():
        stat = procfs.read_stat(pid)
        if stat is not None and stat.session == session:
            ticks += stat.cpu + stat.cpu_of_children
    return procfs.seconds(ticks)


def cuda_is_open(pid: int) -> bool:
    """Whether the process has loaded the CUDA driver. True when that cannot be read: better keep what may be used."""
    return procfs.maps_file(pid, "libcuda.so") is not False


def _hours(seconds: float) -> str:
    if seconds < 120:
        return "%.0f s" % seconds
    if seconds < 7200:
        return "%.0f min" % (seconds / 60)
    return "%.1f h" % (seconds / 3600)
