"""What runs in the background: tasks that nobody waits for, and a thread for files that may be slow."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any

from ..errors import GpuKernelError

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Keeps the tasks that it starts until they have ended: asyncio itself would let them be collected before.

    The error of a task is logged when the task ends; a traceback only if the error is a bug.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the coroutine on the event loop. Return its task."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, GpuKernelError):
            _log.warning("%s: %s", error.hop, error.cause)
        elif error is not None:
            _log.error("a task in the background failed", exc_info=error)


class DiskThread:
    """A thread that makes calls, one after another, which catch their own errors.

    The calls are about files in the user's home, which may be on a file server that does not answer: neither the hub's
    event loop nor its exit waits for them.
    """

    def __init__(self) -> None:
        self._calls = SimpleQueue[Callable[[], object]]()
        threading.Thread(target=self._run, name="disk", daemon=True).start()

    def call(self, function: Callable[[], object]) -> None:
        """Call the function soon."""
        self._calls.put(function)

    async def done(self, within: float | None = None) -> None:
        """Return when all calls until now have been made, or after `within` seconds."""
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
