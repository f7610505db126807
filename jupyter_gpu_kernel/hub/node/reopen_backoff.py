"""How often the way to one keeper is opened again, and after which pause, when the keeper hangs up or breaks the rules.

This file knows neither links nor frames.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

MOST = 10
"""Attempts in a row of which none led to a greeting, after which it is hopeless: about half a minute."""
LASTING = 10.0
"""Seconds after which a way that was open counts as good."""


class ReopenBackoff:
    """`opened` at each greeting, `pause()` at each end. `pauses(before)`: the pause after another, in seconds."""

    def __init__(self, pauses: Callable[[float], float]) -> None:
        self._pauses = pauses
        self._ungreeted = 0
        self._greeted: float | None = None
        self._next = 0.0

    @property
    def hopeless(self) -> bool:
        """Whether the keeper will not greet, as it seems."""
        return self._ungreeted >= MOST

    def opened(self) -> None:
        """The keeper has greeted."""
        self._ungreeted, self._greeted = 0, time.monotonic()

    def pause(self) -> float:
        """Seconds until the next attempt: none after a way that lasted, else ever more, with jitter."""
        greeted, self._greeted = self._greeted, None
        if greeted is None:
            self._ungreeted += 1
        elif time.monotonic() - greeted > LASTING:
            self._next = 0.0
        pause, self._next = self._next, self._pauses(self._next)
        return pause * random.uniform(0.7, 1.3)
