"""Wait for what sends no event: the tests' only loop that looks again and again; and for input."""

from __future__ import annotations

import select
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


def readable(descriptor: int, seconds: float = DEADLINE) -> bool:
    """Wait at most so long until there is something to read. Not `select`, which takes no descriptor above 1023."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(seconds * 1000))
