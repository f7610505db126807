"""How received bytes are pushed from where they come from to where they are used, without a thread in between.

Threads read while a connection is made. Afterwards a `Source` is told once to pass everything on to a `Consumer`: each
hand-over from one thread to another costs more than a small message does. This module knows no SSH.
"""

from __future__ import annotations

from typing import Protocol


class Consumer(Protocol):
    """Takes bytes from any thread, but from one at a time. It returns at once."""

    @property
    def pending(self) -> int:
        """The bytes that it has not processed yet."""

    def feed(self, data: bytes, /) -> None:
        """Take the next bytes."""

    def end(self) -> None:
        """No more bytes come. May be called more than once, and from any thread."""


class Source(Protocol):
    """Where bytes come from."""

    def pass_on(self, consumer: Consumer, /) -> None:
        """Give this consumer all that comes from now on, and what was received already. Nobody else may read."""

    def consumed(self, size: int, /) -> None:
        """The consumer has processed so many bytes, so more may come. Called from any thread; never blocks."""
