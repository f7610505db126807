"""Decides whether the kernel is in use: cells run, `hold` is open, the user was active, or processes compute."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any, Dict, Iterator, List, Set, Tuple

from ..system import procfs

LINGER = 600.0
"""Seconds that a kernel counts as in use after its user was last active."""
_SAMPLES = 8


class Usage:
    """What makes the kernel be in use, except for computing processes; see `is_computing`."""

    def __init__(self, linger: float = LINGER) -> None:
        self.lock = threading.RLock()
        """Held also while text is written to running cells, so that it appears before their end. It is reentrant,
        because a SIGTERM function may interrupt the main thread anywhere."""
        self._linger = linger
        self._cells: Dict[object, Any] = {}
        self._holds = 0
        self._last_active = time.monotonic()

    @contextlib.contextmanager
    def cell(self, request: Any, by_user: bool) -> Iterator[None]:
        """A context in which a cell runs. `request`: None if it shows no output; `by_user`: its user is active."""
        key = object()
        with self.lock:
            self._cells[key] = request
            self._touch(by_user)
        try:
            yield
        finally:
            with self.lock:
                del self._cells[key]
                self._touch(by_user)

    def _touch(self, by_user: bool) -> None:
        if by_user:
            self._last_active = time.monotonic()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """A context in which the kernel is in use, in any thread."""
        with self.lock:
            self._holds += 1
        try:
            yield
        finally:
            with self.lock:
                self._holds -= 1

    def visible_cells(self) -> List[Any]:
        """Return the requests of the running cells that show output."""
        with self.lock:
            return [request for request in self._cells.values() if request is not None]

    def running_cells(self) -> Set[object]:
        """Return a unique key of each running cell, including silent ones."""
        with self.lock:
            return set(self._cells)

    def in_use(self) -> bool:
        """Return whether the kernel is in use, as far as that is known without measuring."""
        with self.lock:
            busy = bool(self._cells) or self._holds > 0
            return busy or time.monotonic() - self._last_active < self._linger


def is_computing(seconds: float = 0.5) -> bool:
    """Measure whether this process, or another one of the process group it leads, computes.

    On an overloaded node a computing process gets little CPU time, but it is runnable in every sample. The time of this
    measurement, which reads every process of the node, does not count.
    """
    measured, (before, _) = time.thread_time(), _cpu_usage()
    runnable = 0
    for _ in range(_SAMPLES):
        time.sleep(seconds / _SAMPLES)
        used, runs = _cpu_usage()
        runnable += runs
    used -= time.thread_time() - measured
    return used - before > seconds / 10 or runnable >= _SAMPLES - 1


def _cpu_usage() -> Tuple[float, bool]:
    """The CPU seconds that the process group has used, and whether one of its processes is runnable."""
    if os.getpgrp() != os.getpid():  # the group belongs to another process, and so does what happens in it
        return time.process_time(), False
    ticks, runs = 0, False
    for pid in procfs.pids():
        stat = procfs.read_stat(pid)
        if stat is not None and stat.group == os.getpid():
            ticks += stat.cpu
            runs = runs or stat.state == "R"
    return procfs.seconds(ticks), runs
