"""What both transports do to connect along a route: hop by hop, with one deadline for all, and with retries.

All of it blocks, on worker threads. This module knows no kernels, no agent and no kernelspecs.
"""

from __future__ import annotations

import contextlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...errors import ConnectError
from ..transport.connection import timed_step
from . import Attempt
from .config.route import Hop
from .failures import lost, no_greeting
from .route_connection import RouteConnection
from .sign_in.deadline import Deadline, TimedAsker, Turns

T = TypeVar("T")
_MAX_ATTEMPTS = 6


class ServerBusy(Exception):
    """The connection to a hop ended without a reason before anybody signed in there, so that it may be tried again.
    `greeted`: the server had sent its version string. `final`: the user has typed a code, which is valid only once."""

    def __init__(self, hop: Hop, greeted: bool, final: bool = False) -> None:
        super().__init__(hop, greeted, final)
        self.hop, self.greeted, self.final = hop, greeted, final


class Connector(ABC):
    """Makes `connection`, which gains an open hop for each hop of the route.

    Host keys that the user accepts are written to `trust_file`. A GpuKernelError names the hop that failed, and has the
    steps so far."""

    def __init__(
        self, connection: RouteConnection, attempt: Attempt, deadline: Deadline, trust_file: Path
    ) -> None:
        self.connection = connection
        self.deadline, self.trust_file = deadline, trust_file
        self.progress = attempt.progress
        self._asker = attempt.ask

    def connect(self, route: Sequence[Hop], turns: Turns, since: int) -> None:
        """Connect to the hops that the connection does not have yet. Raises ConnectError, HostKeyError or AuthError; or
        AskedMeanwhile, if another attempt has asked the user for one of them after `since` (see `Turns`)."""
        for number in range(self._first(route), len(route)):
            hop = route[number]
            if self.deadline.expired:
                cause = "timed out before this hop was reached"
                with self.step(hop, "reach"):
                    raise ConnectError(cause, hop=hop.label, remedy="Try again in a few minutes.")
            if self.connection.opened:
                self.connection.enable_tcp_nodelay()
            with self._asking(route[: number + 1], turns, since) as ask:
                self._connect_hop(hop, ask)
                if ask is not None and ask.asked:
                    self.connection.mark_typed()

    @contextlib.contextmanager
    def _asking(self, hops: Sequence[Hop], turns: Turns, since: int) -> Iterator[TimedAsker | None]:
        """Yield what asks the user about the last of these hops, one attempt at a time; None if nobody may be asked."""
        hop = hops[-1]
        on_wait = partial(self.progress, hop.label, "waiting for another sign-in to this host")
        with turns.of(hops, since, on_wait) as take_turn:
            asker = self._asker if hop.asks else None
            yield TimedAsker(asker, self.deadline, take_turn) if asker is not None else None

    def _first(self, route: Sequence[Hop]) -> int:
        """Return the number of the first hop to connect to."""
        return len(self.connection.hops)

    @abstractmethod
    def _connect_hop(self, hop: Hop, ask: TimedAsker | None) -> None:
        """Connect to the next hop, sign in, and add it to the connection."""

    def step(self, hop: Hop, step: str) -> contextlib.AbstractContextManager[None]:
        """Record the time of one step, which ends with the block."""
        return timed_step(self.connection.steps, hop.label, step, self.progress)

    def _repeated(self, reach: Callable[[], T]) -> T:
        """Return `reach()`, which is called again after a ServerBusy: several times while a server sends no version
        string, since it is overloaded, and once if the connection ends in the key exchange. The pauses are of random
        length. Raises the error of the last attempt."""
        for number in range(_MAX_ATTEMPTS):
            if number:
                time.sleep(self.deadline.remaining(random.uniform(0.1, 0.5) * 2**number))
                if self.deadline.expired:
                    break
            try:
                return reach()
            except ServerBusy as busy:
                error = lost(busy.hop.label) if busy.greeted else no_greeting(busy.hop)
                if busy.final or (busy.greeted and number):
                    break
        raise error
