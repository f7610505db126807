"""Time and randomness, passed in: hub and keeper take them from one object, which a simulation replaces."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from itertools import count
from random import Random, SystemRandom
from typing import Callable, Optional


class Runtime:
    """The system's clocks, and numbers that nobody can guess unless another source of them is given."""

    def __init__(self, random: Optional[Random] = None) -> None:
        self.random: Random = random or SystemRandom()

    def monotonic(self) -> float:
        """Return seconds since some moment, for durations. In the hub this is the event loop's time, too."""
        return time.monotonic()

    def time(self) -> float:
        """Return seconds since the epoch, for what people read."""
        return time.time()

    def now(self) -> str:
        """Return the time in UTC as messages have it: ISO 8601."""
        return datetime.fromtimestamp(self.time(), timezone.utc).isoformat()

    def sleep(self, seconds: float) -> None:
        """Block this thread. Coroutines use asyncio.sleep, which follows their event loop's clock."""
        time.sleep(seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float, interval: float = 0.05) -> bool:
        """Block this thread until `condition()`, for at most so many seconds. Return whether it was met.

        interval: Seconds between two calls of `condition`.
        """
        deadline = self.monotonic() + seconds
        while not condition():
            if self.monotonic() > deadline:
                return False
            self.sleep(interval)
        return True

    def new_id(self) -> str:
        """Return 128 random bits as 32 hexadecimal digits, as a `uuid.uuid4().hex` has them."""
        return "%032x" % self.random.getrandbits(128)


class EventRuntime(Runtime):
    """The runtime of a pure core: ids are counted, and its clocks stand still while an event is handled.

    clocks: What the monotonic and the other clock showed when the present event happened.
    """

    def __init__(self, prefix: str) -> None:
        """`prefix`: what no other process begins its ids with."""
        super().__init__(Random(0))
        self._ids = (f"{prefix}-{number}" for number in count(1))
        self.clocks = (0.0, 0.0)

    def monotonic(self) -> float:
        return self.clocks[0]

    def time(self) -> float:
        return self.clocks[1]

    def new_id(self) -> str:
        return next(self._ids)
