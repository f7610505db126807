"""What a keeper does from time to time: it ends an idle kernel or a forgotten reservation, releases unused GPUs, and
looks after its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from ...paths import touch, touch_agent
from ...system.loop import Timer
from ..setup import trim

if TYPE_CHECKING:
    from ..keeper import Keeper

TOUCH_INTERVAL = 12 * 3600.0
"""Seconds after which the keeper's files are touched again."""
LAPSES_AFTER = 45.0
"""Seconds without a hub after which a reservation ends."""
_LAPSED = "its hub has gone, and the kernel was only a reservation of GPUs on one of several hosts"


class Housekeeping:
    """`begin()` begins the housekeeping, which goes on until the loop ends."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._lapse: Optional[Timer] = None

    def begin(self) -> None:
        """Touch the files now; the rest comes after the first interval."""
        self._keeper.loop.later(self._keeper.idle_timer.tick, self._tick)
        self._touch_files()
        self.detached()

    def attached(self) -> None:
        """A hub is attached."""
        if self._lapse is not None:
            self._lapse.cancel()

    def detached(self) -> None:
        """No hub is attached, so that a reservation ends if none comes back in time."""
        if self._keeper.settings.now.reservation:
            self._lapse = self._keeper.loop.later(LAPSES_AFTER, self._end_reservation)

    def _end_reservation(self) -> None:
        if self._keeper.settings.now.reservation:
            self._keeper.stop(_LAPSED)

    def _touch_files(self) -> None:
        """Keep our files from being cleaned up as old: a successor needs them, also weeks after the start."""
        touch(self._keeper.folder, self._keeper.story.path)
        touch_agent(self._keeper.loop.runtime.time())
        self._keeper.loop.later(TOUCH_INTERVAL, self._touch_files)

    def _tick(self) -> None:
        self._keeper.loop.later(self._keeper.idle_timer.tick, self._tick)
        trim(self._keeper.folder / "log")
        self._keeper.gpus.gpu_time.update()
        if self._keeper.requests.up:
            self._check_idle()

    def _check_idle(self) -> None:
        """Check whether the kernel has been idle for too long, or a GPU has been unused."""
        keeper = self._keeper
        advice = keeper.idle_timer.advise(
            busy=keeper.status.state != "idle",
            attached=keeper.server.attached,
            cpu=keeper.kernel.cpu_seconds,
            has_gpu=keeper.gpus.acquisition.holds_leases,
            cuda_open=keeper.kernel.has_opened_gpus,
            named=bool(keeper.settings.now.notebook),
        )
        if advice.give_back:
            keeper.gpus.release_unused()
        if advice.end:
            keeper.stop(advice.end)
