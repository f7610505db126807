"""How long a kernel may be idle, and the facts from which its idleness follows.

A kernel is idle while no cell runs or waits, and its process tree uses no CPU. While a front end is attached, the
limit counts from the kernel's last use. While none is attached, the limit is shorter (five minutes where no notebook is
known), and counts from the moment when the last front end left. A short disconnection after a long pause does not end
the kernel.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from ....wire.texts import duration
from ...kernel_settings import KernelSettings

UNNAMED = 5 * 60.0
"""Seconds, at the most, for a detached kernel without a notebook: no front end returns to it by itself."""
WORKING = 0.02
"""Share of one CPU above which a process tree counts as working: polling loops and heartbeats use less."""


class IdleAdvice(NamedTuple):
    """`end`: why to end the kernel now. `give_back`: whether to release its GPUs."""

    end: str = ""
    give_back: bool = False


class IdleTimer:
    """Measures how long the kernel has been idle. `now` returns the time in seconds, of a monotonic clock."""

    def __init__(self, settings: KernelSettings, now: Callable[[], float]) -> None:
        self._detached = settings.idle_timeout
        self._attached = settings.idle_timeout_attached
        self._unused = settings.gpu_timeout
        shortest = min(limit for limit in (self._detached, self._attached, self._unused, 300.0) if limit)
        self.tick = max(0.5, shortest / 10)
        """Seconds between two calls of `advise`."""
        self._now = now
        self._last = now()
        self._seen = now()  # when a front end was attached last
        self._cpu: Optional[float] = None
        self._cpu_at = now()

    def used(self) -> None:
        """The kernel was used."""
        self._last = self._now()

    def idle_for(self) -> float:
        """Seconds since the kernel was used, or used the CPU at a call of `advise`."""
        return self._now() - self._last

    def keeps_ended_kernel(self) -> bool:
        """Whether to keep a kernel that ended while no front end was attached: as long as an idle kernel is kept."""
        return not self._detached or self._now() - self._last < self._detached

    def advise(
        self, *, busy: bool, attached: bool, cpu: float, has_gpu: bool, cuda_open: bool, named: bool = True
    ) -> IdleAdvice:
        """Return what to do now.

        cpu: Seconds of CPU time that the kernel's process tree has used so far.
        named: Whether the kernel belongs to a notebook, which can return to it.
        """
        if busy or self._working(cpu):
            self.used()
            return IdleAdvice()
        if attached:
            self._seen = self._now()
        detached = self._detached if named else min(self._detached, UNNAMED)
        limit = self._attached if attached else detached
        idle = self._now() - (self._last if attached else max(self._last, self._seen))
        if limit and idle >= limit:
            return IdleAdvice(
                end=f"idle for {duration(round(idle))} {'with' if attached else 'without'} a front end"
            )
        return IdleAdvice(give_back=has_gpu and not cuda_open and 0 < self._unused <= idle)

    def _working(self, cpu: float) -> bool:
        now = self._now()
        passed = max(now - self._cpu_at, 1e-6)
        share = 0.0 if self._cpu is None else (cpu - self._cpu) / passed
        self._cpu, self._cpu_at = cpu, now
        return share > WORKING
