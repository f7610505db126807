"""Wait for what sends no event: the tests' only loop that looks again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE = 60.0
"""Seconds until a test gives up waiting; nothing measures how long it took."""
T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, *, every: float = 0.01) -> T:
    """Return the first true value of `look()`."""
    deadline = time.monotonic() + DEADLINE
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {DEADLINE:.0f} s: {what}"
        time.sleep(every)
    return seen
