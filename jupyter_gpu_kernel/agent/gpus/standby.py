"""A kernel on standby gets GPUs, but runs no user cell until the hub confirms it: the hub waits on several hosts at
once, and only one of them may run the cells.

The hub renews the standby of a kernel that waits. If it does not, because hub or link are gone, the kernel ends: it has
run nothing yet. This module knows no GPUs and no cells.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ..loop import Loop, Timer

CELL, NOW = "cell", "now"
"""The values of the setting `standby`: GPUs are taken when a cell waits, or at once (a reservation). "": no standby."""
LAPSES_AFTER = 45.0
"""Seconds without a renewal after which a kernel that waits on standby ends."""

_LAPSED = "its hub has not renewed the wait for GPUs on several hosts"


class GpuStandby:
    """`active` until `confirm`. Call `begin` when the kernel waits, `end` when it does not, `renew` for the hub."""

    def __init__(self, loop: Loop, mode: str, on_lapse: Callable[[str], None]) -> None:
        self.active = mode in (CELL, NOW)
        self.is_reservation = mode == NOW
        self.elsewhere = ""
        """What the hub tells of the other hosts, for the waiting cell."""
        self.problem = ""
        """Why the GPUs cannot be had, at the last attempt."""
        self._loop = loop
        self._on_lapse = on_lapse
        self._timer: Optional[Timer] = None

    def begin(self) -> None:
        """The kernel waits: from now on the hub has to renew the standby."""
        if self.active and self._timer is None:
            self._timer = self._loop.later(LAPSES_AFTER, lambda: self._on_lapse(_LAPSED))

    def renew(self) -> None:
        """The hub is there."""
        if self._timer is not None:
            self.end()
            self.begin()

    def end(self) -> None:
        """The kernel does not wait any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def confirm(self) -> None:
        """The kernel is an ordinary one from now on."""
        self.end()
        self.active = self.is_reservation = False

    def status(self, waiting_text: str) -> Dict[str, Any]:
        """Return what the hub needs to know; {} if there is no standby."""
        if not self.active:
            return {}
        return {
            "standby": True,
            "reservation": self.is_reservation,
            "waiting_text": waiting_text,
            "problem": self.problem,
        }
