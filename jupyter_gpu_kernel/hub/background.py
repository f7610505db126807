"""Tasks that nobody waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
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

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine on the event loop."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, GpuKernelError):
            _log.warning("%s: %s", error.hop, error.cause)
        elif error is not None:
            _log.error("a task in the background failed", exc_info=error)
