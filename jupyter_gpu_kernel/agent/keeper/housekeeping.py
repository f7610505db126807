"""What a keeper does from time to time: it ends an idle kernel, releases unused GPUs, and looks after its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..paths import touch, touch_agent
from .idle_timer import tree_cpu
from .setup import trim

if TYPE_CHECKING:
    from .keeper import Keeper

TOUCH_INTERVAL = 12 * 3600.0
"""Seconds after which the keeper's files are touched again."""


class Housekeeping:
    """`begin()` begins the housekeeping, which goes on until the loop ends."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def begin(self) -> None:
        """Touch the files now; the rest comes after the first interval."""
        self._keeper.loop.later(self._keeper.idle_timer.tick, self._tick)
        self._touch_files()

    def _touch_files(self) -> None:
        """Keep our files from being cleaned up as old: a successor needs them, also weeks after the start."""
        touch(self._keeper.folder, self._keeper.story.path)
        touch_agent(self._keeper.loop.runtime.time())
        self._keeper.loop.later(TOUCH_INTERVAL, self._touch_files)

    def _tick(self) -> None:
        self._keeper.loop.later(self._keeper.idle_timer.tick, self._tick)
        trim(self._keeper.folder / "log")
        self._keeper.gpus.gpu_time.update()
        if self._keeper.ready.up:
            self._check_idle()

    def _check_idle(self) -> None:
        """Check whether the kernel has been idle for too long, or a GPU has been unused."""
        keeper = self._keeper
        advice = keeper.idle_timer.advise(
            busy=keeper.status.state != "idle",
            attached=keeper.server.attached,
            cpu=tree_cpu(keeper.kernel.pid),
            has_gpu=keeper.gpus.acquisition.holds_leases,
            cuda_open=keeper.status.has_opened_gpus,
            named=bool(keeper.settings.now.notebook),
        )
        if advice.warn:
            keeper.story.tell("idle", advice.warn)
        if advice.give_back:
            keeper.gpus.release_unused()
        if advice.end:
            keeper.stop(advice.end)
