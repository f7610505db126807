"""The keeper's event loop, in one thread: callbacks for sockets and descriptors, and timers.

(asyncio would need versions of pyzmq and Python that agree, from Python 3.8 on. This module has all that we would use
of asyncio.)
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
from concurrent.futures import Future
from typing import Any, Callable, Dict, List, Tuple, TypeVar

import zmq

from .agent_runtime import AgentRuntime

_POLL_MS = 60_000
"""Between two turns where no timer is due earlier. Nothing depends on it: signals come by a descriptor, too."""
T = TypeVar("T")


class Timer:
    """A callback that is due at a time of the loop's clock, unless it is cancelled."""

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Do not call the callback."""
        self.cancelled = True


class Loop:
    """`watch` file descriptors and zmq sockets, set timers with `later`, and `run` until `stop`."""

    def __init__(self, runtime: AgentRuntime) -> None:
        self.runtime = runtime
        self._poller = zmq.Poller()
        self._callbacks: Dict[Any, Callable[[int], None]] = {}
        self._timers: List[Tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._running = False

    def time(self) -> float:
        """Return the time in seconds, of the runtime's monotonic clock."""
        return self.runtime.monotonic()

    def watch(self, source: Any, callback: Callable[[int], None], events: int = zmq.POLLIN) -> None:
        """Call `callback(events)` when the source (a zmq socket or a descriptor) is ready."""
        self._callbacks[source] = callback
        self._poller.register(source, events)

    def forget(self, source: Any) -> None:
        """Stop watching this source; called before it is closed."""
        if self._callbacks.pop(source, None) is not None:
            self._poller.unregister(source)

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback()` once, in `seconds`."""
        timer = Timer(self.time() + seconds, callback)
        heapq.heappush(self._timers, (timer.due, next(self._count), timer))
        return timer

    def run_in_thread(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Call `work()` in a thread, and then `done(its result)` in the loop.

        An exception of `work` is raised in the loop.
        """
        result: Future[T] = Future()
        read_fd, write_fd = os.pipe()

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:  # raised again in the loop's thread
                result.set_exception(error)
            os.close(write_fd)

        def finish(_: int) -> None:
            self.forget(read_fd)
            os.close(read_fd)
            done(result.result())

        self.watch(read_fd, finish)
        threading.Thread(target=run, name="loop-worker", daemon=True).start()

    def run(self) -> None:
        """Run until `stop`. An exception of a callback ends the loop and is raised here."""
        self._running = True
        while self._running:
            for source, events in self._poller.poll(self._wait_ms()):
                callback = self._callbacks.get(source)
                if callback is not None:
                    callback(events)
            self._run_timers()

    def stop(self) -> None:
        """End `run` after this turn."""
        self._running = False

    def _wait_ms(self) -> int:
        if not self._timers:
            return _POLL_MS
        return max(0, min(_POLL_MS, math.ceil((self._timers[0][0] - self.time()) * 1000)))

    def _run_timers(self) -> None:
        now = self.time()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.callback()
