"""What a keeper does from time to time: it ends an idle kernel, releases unused GPUs, and looks after its files."""

from __future__ import annotations

from typing import Callable

from ..gpus.manager import GpuManager
from ..kernel_context import KernelContext
from ..paths import touch, touch_agent
from ..process.kernel_sockets import Readiness
from .idle_timer import IdleTimer, tree_cpu
from .setup import trim
from .status import Status

TOUCH_INTERVAL = 12 * 3600.0
"""Seconds after which the keeper's files are touched again."""


class Housekeeping:
    """`begin()`, and it goes on until the loop ends."""

    def __init__(
        self,
        context: KernelContext,
        idle_timer: IdleTimer,
        status: Status,
        ready: Readiness,
        gpus: GpuManager,
        stop: Callable[[str], None],
    ) -> None:
        """`stop(why)`: called when it has been idle for too long."""
        self._loop = context.loop
        self._settings = context.settings
        self._folder = context.folder
        self._story = context.story
        self._idle_timer = idle_timer
        self._status = status
        self._ready = ready
        self._gpus = gpus
        self._stop = stop

    def begin(self) -> None:
        """Touch the files now; the rest comes after the first interval."""
        self._loop.later(self._idle_timer.tick, self._tick)
        self._touch_files()

    def _touch_files(self) -> None:
        """Keep our files from being cleaned up as old: a successor needs them, also weeks after the start."""
        touch(self._folder, self._story.path)
        touch_agent(self._loop.runtime.time())
        self._loop.later(TOUCH_INTERVAL, self._touch_files)

    def _tick(self) -> None:
        self._loop.later(self._idle_timer.tick, self._tick)
        trim(self._folder / "log")
        self._gpus.gpu_time.update()
        if self._ready.up:
            self._check_idle()

    def _check_idle(self) -> None:
        """Check whether the kernel has been idle for too long, or a GPU has been unused."""
        advice = self._idle_timer.advise(
            busy=self._status.state != "idle",
            attached=self._status.attached,
            cpu=tree_cpu(self._status.pid),
            has_gpu=self._gpus.acquisition.holds_leases,
            cuda_open=self._status.has_opened_gpus,
            named=bool(self._settings.now.notebook),
        )
        if advice.warn:
            self._story.tell("idle", advice.warn)
        if advice.give_back:
            self._gpus.release_unused()
        if advice.end:
            self._stop(advice.end)
