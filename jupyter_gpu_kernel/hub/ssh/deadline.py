"""The time limit for connecting along a route, which does not run while the user types."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from . import Asker, Secret


class Deadline:
    """The time that remains for the whole route; it stands still while the user types."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._paused_since: float | None = None
        self._lock = threading.Lock()

    def remaining(self, most: float | None = None) -> float:
        """Return seconds, at least 0.05: a wait that short then reports the timeout itself."""
        left = max(self._left(), 0.05)
        return left if most is None else min(left, most)

    @property
    def expired(self) -> bool:
        return self._left() <= 0

    def _left(self) -> float:
        with self._lock:
            return self._end - (self._paused_since or time.monotonic())

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let no time pass inside this block, which one thread at a time may enter."""
        with self._lock:
            self._paused_since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._end += time.monotonic() - self._paused_since
                self._paused_since = None


class TimedAsker:
    """An asker that pauses the deadline while the user types."""

    def __init__(self, ask: Asker, deadline: Deadline) -> None:
        self._ask, self._deadline = ask, deadline
        self._used = False

    def take_used(self) -> bool:
        """Return whether a secret was asked for since the last call."""
        used, self._used = self._used, False
        return used

    def secret(self, hop: str, prompt: str, secret: Secret) -> str:
        self._used = True
        with self._deadline.paused():
            return self._ask.secret(hop, prompt, secret)

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        with self._deadline.paused():
            return self._ask.confirm_host(hop, fingerprint, key_type)
