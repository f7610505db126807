"""A thread for files in the user's home, which may be on a file server that does not answer: the hub's event loop does
not wait for them, and neither does its exit."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue


class DiskThread:
    """Makes calls in a thread, one after another. They catch their own errors."""

    def __init__(self) -> None:
        self._calls = SimpleQueue[Callable[[], object]]()
        threading.Thread(target=self._run, name="disk", daemon=True).start()

    def call(self, function: Callable[[], object]) -> None:
        """Call the function soon."""
        self._calls.put(function)

    async def done(self, within: float | None = None) -> None:
        """Return when all calls until now have been made, or after so many seconds."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(done.set)

        self.call(tell)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(done.wait(), within)

    def _run(self) -> None:
        while True:
            self._calls.get()()
