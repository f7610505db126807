"""An SSH connection through one or more hops: its sessions, the hops that it shares with others, and how it is made.

Each transport has its kind of `OpenHop`, and of `Connector`, which goes from hop to hop, with one deadline for all,
and tries again. All of it blocks, on worker threads. This module knows no keys and no meaning of the bytes.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...errors import ConnectError
from ..sanitize import one_line
from ..transport.connection import SHELL, Completed, Connection, run_to_end, timed_step
from ..transport.stream import CommandStream, return_within
from . import Attempt
from .config.route import Hop, begins_with
from .failures import lost, no_greeting
from .sign_in.deadline import Deadline, TimedAsker, Turns

_MAX_COMMANDS = 4  # short commands at a time; a server allows 10 sessions per connection (MaxSessions)
OPEN_TIMEOUT = 20.0
"""Seconds for the server to open a session."""
_SESSION_RETRY = 2.0  # seconds in which a refused session is asked for again
_CLOSE_TIMEOUT = 1.0  # seconds
_sharing = threading.Lock()  # while it changes which connections use a hop
T = TypeVar("T")
_MAX_ATTEMPTS = 6


class SessionRefused(Exception):
    """The server refused a session."""


class OpenHop(ABC):
    """One machine to which we have signed in, for all connections that lead through it."""

    shareable = True
    """Whether other connections may use this hop."""

    def __init__(self, host_key: str) -> None:
        self.host_key = host_key
        """The fingerprint of the verified host key; "" if only ssh knows it."""
        self.typed = False
        """Whether the user typed a secret for this hop."""
        self.users = 0
        """The number of connections that lead through this hop."""

    @abstractmethod
    def alive(self) -> bool:
        """Whether the connection to this machine is open, as far as this end can tell."""

    @abstractmethod
    def open(self, command: str, timeout: float) -> CommandStream:
        """Run a command in a new session. Raises SessionRefused, TimeoutError if the server does not answer in time,
        another OSError if the connection does not work, or ConnectError."""

    @contextlib.contextmanager
    def shell(self, timeout: float) -> Iterator[CommandStream]:
        """Yield a shell for short commands. Raises as `open`."""
        with contextlib.closing(self.open(SHELL, timeout)) as shell:
            yield shell

    @abstractmethod
    def responds(self, within: float) -> bool:
        """Whether the server opens a session, or refuses to, within so many seconds."""

    @abstractmethod
    def close(self) -> None:
        """End the connection to this machine."""


class RouteConnection(Connection):
    """A connection through one or more hops."""

    def __init__(self, transport: str) -> None:
        super().__init__("", transport)
        self.hops: list[Hop] = []
        self.opened: list[OpenHop] = []
        """The open hops, one for each of `hops`, unless a hop is passed (`add_passed`)."""
        self._short_commands = threading.BoundedSemaphore(_MAX_COMMANDS)

    # --- for those who make it

    def add(self, hop: Hop, opened: OpenHop) -> None:
        """Add the next hop."""
        with _sharing:
            self._add(hop, opened)

    def _add(self, hop: Hop, opened: OpenHop) -> None:
        opened.users += 1
        self.label = hop.label
        self.hops.append(hop)
        self.opened.append(opened)
        self.host_keys.append((hop.label, opened.host_key))

    def add_passed(self, hop: Hop, host_key: str) -> None:
        """Add the next hop, which is only open as a part of the one that follows it."""
        self.hops.append(hop)
        self.host_keys.append((hop.label, host_key))

    def mark_typed(self) -> None:
        """The user typed a secret for the last hop so far, so that the connection must not be given up early."""
        self.opened[-1].typed = True

    def share_with(self, other: RouteConnection, route: Sequence[Hop]) -> bool:
        """Let `other`, which has no hops yet, begin with the hops of this connection up to the last for which the user
        typed a secret. Return False if there are none, if they have ended, or if the route begins with others."""
        with _sharing:
            typed = max((number for number, one in enumerate(self.opened, 1) if one.typed), default=0)
            hops, opened = self.hops[:typed], self.opened[:typed]
            usable = not self.closed and all(one.shareable and one.alive() for one in opened)
            if not hops or not usable or not begins_with(route, hops):
                return False
            for hop, one in zip(route, opened, strict=False):
                other._add(hop, one)
            return True

    def enable_tcp_nodelay(self) -> None:
        """Run `true` on the last hop so far, without waiting: OpenSSH sets TCP_NODELAY only on connections that have
        had a session, and a mere jump host never has one. If the hop refuses, it is slower."""
        threading.Thread(target=_run_true, args=(self.opened[-1],), name="ssh nodelay", daemon=True).start()

    # --- for all users

    @property
    def interactive(self) -> bool:
        """Whether the user typed a secret for one of the hops."""
        return any(one.typed for one in self.opened)

    def open(self, command: str) -> CommandStream:
        """Run `command` in the last hop's login shell."""
        return self._started(partial(self.opened[-1].open, command), OPEN_TIMEOUT)

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        """Run a short command."""
        with self._short_commands, contextlib.ExitStack() as stack:

            def start(seconds: float) -> CommandStream:
                return stack.enter_context(self.opened[-1].shell(seconds))

            shell = self._started(start, min(timeout, OPEN_TIMEOUT))
            done = run_to_end(shell, stdin, timeout, self.label, command)
        if done.returncode in (-1, 255) and not self.alive():  # 255 is the ssh program's own status
            raise lost(self.label)
        return done

    def alive(self) -> bool:
        """Whether every hop still looks connected."""
        return bool(self.opened) and not self.closed and all(one.alive() for one in self.opened)

    def responds(self, within: float) -> bool:
        """Whether the last hop opens a session, or refuses to, within so many seconds."""
        return self.opened[-1].responds(within)

    def close(self) -> None:
        """Close all hops that no other connection uses, the first one first: the others may be blocked in sending
        through it. Through a hop that stays open they may be blocked for long, hence the time limit."""
        with _sharing:
            if self.closed:
                return
            self.closed = True
            for one in self.opened:
                one.users -= 1
            unused = [one for one in self.opened if not one.users]
        with contextlib.suppress(TimeoutError):
            return_within(
                None if len(unused) == len(self.opened) else _CLOSE_TIMEOUT, partial(self._close_hops, unused)
            )

    def _close_hops(self, unused: Sequence[OpenHop]) -> None:
        for one in unused:
            one.close()
        self._close_streams()

    # --- sessions

    def _started(self, start: Callable[[float], CommandStream], timeout: float) -> CommandStream:
        end = time.monotonic() + timeout
        patience = min(time.monotonic() + _SESSION_RETRY, end)
        while True:
            try:
                return self._kept(start(max(end - time.monotonic(), 0.05)))
            except SessionRefused as error:
                # The server may not have released yet a session that we have just closed.
                if time.monotonic() > patience:
                    raise ConnectError(
                        f"refused another session on this connection (MaxSessions): {one_line(str(error))}",
                        hop=self.label,
                        remedy="Close other uses of this connection, or ask its administrators for a higher limit.",
                    ) from error
                time.sleep(0.05)
            except OSError as error:
                raise self._session_error(error) from error

    def _session_error(self, error: OSError) -> ConnectError:
        if not self.alive():
            return lost(self.label)
        if isinstance(error, TimeoutError):
            return ConnectError("timed out", hop=self.label, remedy="Check the network and try again.")
        remedy = "Try `ssh HOST true` by hand."
        return ConnectError(f"does not run commands: {error}", hop=self.label, remedy=remedy)


def _run_true(opened: OpenHop) -> None:
    # A refusal (nologin, MaxSessions) does no harm: the connection works all the same.
    with contextlib.suppress(SessionRefused, OSError, ConnectError):
        stream = opened.open("true", OPEN_TIMEOUT)
        stream.close_stdin()
        stream.wait(OPEN_TIMEOUT)
        stream.close()


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
