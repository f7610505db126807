"""The time limit for connecting along a route, which does not run while the user types; and whose turn it is to ask."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from ....errors import AuthError
from .. import Asker, Secret
from ..config.route import Hop

_MAX_QUESTIONS = 12  # of one hop's server, repetitions included
_Key = tuple[tuple[str, str, int], ...]
"""The account, host and port of each hop, up to the one for which the user is asked."""


class Deadline:
    """The time that remains for the whole route; it stands still while the user types."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._paused_since: float | None = None
        self._lock = threading.Lock()

    def remaining(self, most: float | None = None) -> float:
        """Return seconds, at least 0.05: a wait that short then reports the timeout itself."""
        seconds = max(self._seconds(), 0.05)
        return seconds if most is None else min(seconds, most)

    @property
    def expired(self) -> bool:
        return self._seconds() <= 0

    def _seconds(self) -> float:
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


class AskedMeanwhile(Exception):
    """Another attempt has meanwhile asked the user about this hop: its sign-in may serve the present attempt, too."""


class Turns:
    """Lets one attempt at a time ask the user to sign in to a hop that several routes begin with."""

    def __init__(self) -> None:
        self.over = 0
        """The number of turns that are over."""
        self._asking: dict[_Key, object] = {}
        self._last_over: dict[_Key, int] = {}
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def of(
        self, hops: Sequence[Hop], since: int, on_wait: Callable[[], None]
    ) -> Iterator[Callable[[], None]]:
        """Yield a function that takes the turn to ask for the last of these hops, until the end of the block. It waits
        while another attempt has the turn, and raises AskedMeanwhile if one had it after `since`, as `over` counts.
        `on_wait` is called before it waits."""
        key = tuple((hop.user, hop.host, hop.port) for hop in hops)
        attempt, ended = object(), False

        def take() -> None:
            with self._changed:
                if self._asking.get(key, attempt) is not attempt:
                    on_wait()
                self._changed.wait_for(lambda: self._asking.get(key, attempt) is attempt)
                if ended or self._last_over.get(key, 0) > since:
                    raise AskedMeanwhile
                self._asking[key] = attempt

        try:
            yield take
        finally:
            with self._changed:
                ended = True  # an ssh process may still ask
                if self._asking.get(key) is attempt:
                    del self._asking[key]
                    self.over += 1
                    self._last_over[key] = self.over
                    self._changed.notify_all()


class TimedAsker:
    """Asks the user about one hop, a limited number of times: waits for the turn to do so, and pauses the deadline
    meanwhile."""

    def __init__(self, ask: Asker, deadline: Deadline, take_turn: Callable[[], None]) -> None:
        self._ask, self._deadline, self._take_turn = ask, deadline, take_turn
        self.asked = False
        """Whether a secret was asked for."""
        self._questions = 0

    def secret(self, hop: str, prompt: str, secret: Secret) -> str:
        with self._deadline.paused():
            self._take_turn()
            self.asked = True
            if secret.kind != "passphrase":  # which is of the user's own key
                self._questions += 1
            if self._questions > _MAX_QUESTIONS:
                cause = f"asks more than {_MAX_QUESTIONS} questions"
                remedy = "Tell its administrators: a normal sign-in asks fewer questions."
                raise AuthError(cause, hop=hop, remedy=remedy)
            return self._ask.secret(hop, prompt, secret)

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        with self._deadline.paused():
            self._take_turn()
            return self._ask.confirm_host(hop, fingerprint, key_type)
