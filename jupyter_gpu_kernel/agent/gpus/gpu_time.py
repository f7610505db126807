"""Writes into the story for how long the kernel had its GPUs, and for how long of it a cell ran. `hours.py` reads it.

An entry "usage" covers the time since the one before it. There is one when the kernel loses its GPUs, and one every
15 minutes while it has them: a killed keeper leaves at most so much unreported.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from ...wire.texts import duration
from ..story import Story

INTERVAL = 900.0
"""Seconds that an entry covers at most, about."""


class GpuTime:
    """`update()` at each change of the kernel's state or GPUs, and from time to time."""

    def __init__(
        self,
        now: Callable[[], float],
        story: Story,
        uuids: Callable[[], List[str]],
        names: Callable[[], List[str]],
    ) -> None:
        """now: Return the seconds of a monotonic clock. uuids, names: Return the kernel's GPUs."""
        self._now = now
        self._story = story
        self._uuids, self._names = uuids, names
        self._gpus: List[str] = []
        self._text = ""
        self._busy_now = False
        self._updated = now()
        self._held = self._busy = 0.0

    def update(self, state: Optional[str] = None) -> None:
        """The kernel has this state from now on (None: as before), and perhaps other GPUs."""
        self._count()
        if state is not None:
            self._busy_now = state == "busy"
        gpus = self._uuids()
        if gpus != self._gpus:
            if self._gpus:
                self._write(released=True)
            self._gpus, self._text = list(gpus), ", ".join(self._names())
            self._held = self._busy = 0.0
        elif gpus and self._held >= INTERVAL:
            self._write()

    def unreported(self) -> Dict[str, Any]:
        """Return what the next entry of the story would say now."""
        self._count()
        return {"gpus": self._gpus, "held": round(self._held, 1), "busy": round(self._busy, 1)}

    def _count(self) -> None:
        now = self._now()
        passed, self._updated = now - self._updated, now
        if self._gpus:
            self._held += passed
            self._busy += passed if self._busy_now else 0.0

    def _write(self, **more: bool) -> None:
        verb = "released" if more else "has"
        text = f"{verb} {self._text}: in {duration(round(self._held))}, a cell ran for {duration(round(self._busy))}"
        unwritten = self._story.unwritten
        self._story.tell("usage", text, **self.unreported(), **more)
        if self._story.unwritten == unwritten:  # else the next entry covers this time, too
            self._held = self._busy = 0.0
