"""What follows a SIGTERM: the user's functions run on the main thread, and a countdown to a scheduler's SIGKILL starts.

This module does not know who sent the signal.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, List, Optional

from ..system.agent_runtime import AgentRuntime, Limit, run_programs

OUTPUT_LIMIT = 4000
"""The length of the output that is reported."""
DEFAULT_KILL_WAIT = 30.0
"""Slurm's default KillWait, in seconds."""
COUNTDOWN_STEPS = (600.0, 300.0, 120.0, 60.0, 30.0, 20.0, 10.0, 5.0, 2.0)
"""The remaining seconds at which a line is written."""
_SCONTROL_TIMEOUT = 3.0
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+)", re.MULTILINE)
TERM = frozenset({signal.SIGTERM})
Hook = Callable[[], object]


class Hooks:
    """Runs the user's SIGTERM functions, and the user's own signal handler, on the main thread.

    The guard's thread interrupts the main thread by a real-time signal. If that is in a C call, the functions run after
    it. `functions` run whenever SIGTERM arrives: the guard calls `start` for that.
    """

    def __init__(
        self,
        guard_handler: Callable[[int, Any], None],
        cell_runs: Callable[[], bool],
        report_output: Callable[[str], None],
    ) -> None:
        """Create the hooks of a kernel.

        guard_handler: The guard's own handler of SIGTERM; any other one is the user's.
        cell_runs: Return whether a cell runs that shows output.
        report_output: Called with what the functions printed while no cell ran.
        """
        self.functions: List[Hook] = []
        self.delivering = False
        """Whether SIGTERM is being delivered to the user's own handler."""
        self._guard_handler = guard_handler
        self._cell_runs = cell_runs
        self._report_output = report_output
        self._started = False
        self._interrupt = False
        self._finished = threading.Event()

    def install(self) -> None:
        """Install the handler of the real-time signal. Main thread only."""
        signal.signal(_wake_signal(), self._handle)

    def add(self, function: Hook) -> None:
        """Add a function; it replaces one of the same name, as when its cell runs again."""
        self.functions[:] = [other for other in self.functions if not is_same(other, function)]
        self.functions.append(function)

    def start(self, interrupt: bool = False) -> None:
        """Have the main thread run the functions, unless it runs them now.

        `interrupt`: after them free memory, and interrupt the running cell.
        """
        self._interrupt = self._interrupt or interrupt
        if not (self.functions or interrupt or self._has_user_handler()):
            self._finished.set()
        elif not self._started:
            self._started = True
            self._finished.clear()
            signal.pthread_kill(main_thread_id(), _wake_signal())

    def wait(self, seconds: float) -> None:
        """Wait until the functions have returned."""
        self._finished.wait(seconds)

    def _has_user_handler(self) -> bool:
        handler = signal.getsignal(signal.SIGTERM)
        return callable(handler) and handler != self._guard_handler

    def _handle(self, number: int, frame: Any) -> None:
        try:
            # While no cell runs, prints would appear in an old cell: the story gets them.
            output = None if self._cell_runs() else io.StringIO()
            with contextlib.ExitStack() as stack:
                if output is not None:
                    stack.enter_context(contextlib.redirect_stdout(output))
                    stack.enter_context(contextlib.redirect_stderr(output))
                self._run()
            if output is not None and output.getvalue():
                self._report_output(output.getvalue()[-OUTPUT_LIMIT:])
        finally:
            self._started = False
            self._finished.set()
        if self._interrupt:
            self._interrupt = False
            _free_memory()
            signal.raise_signal(signal.SIGINT)  # interrupts a cell, and is ignored between cells

    def _run(self) -> None:
        functions = list(self.functions)
        if self._has_user_handler():
            functions.append(self._deliver)
        for function in functions:
            try:
                function()
            except BaseException:  # a function that fails, or calls sys.exit, must not end the cell
                print(f"A SIGTERM function failed:\n{traceback.format_exc()}", file=sys.stderr)

    def _deliver(self) -> None:
        """Deliver SIGTERM to the user's handler, on the main thread as always, also with asyncio."""
        self.delivering = True
        try:
            signal.raise_signal(signal.SIGTERM)  # stays pending, as this thread blocks it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)  # the handler runs here, and may raise
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
            self.delivering = False


def main_thread_id() -> int:
    """Return the main thread's id, for signal.pthread_kill."""
    ident = threading.main_thread().ident
    assert ident is not None  # the main thread was started by the system
    return ident


def _wake_signal() -> int:
    return signal.SIGRTMAX - 3  # other libraries use the first real-time signals


def is_same(other: Callable[..., object], function: Callable[..., object]) -> bool:
    """Whether two functions are one, or have the same name, as when a cell runs again."""
    name = getattr(function, "__qualname__", None)
    same_name = name is not None and "<lambda>" not in name and getattr(other, "__qualname__", None) == name
    return other is function or same_name


def _free_memory() -> None:
    """Free what is not referenced any more, here and, if torch has opened CUDA, on the GPU."""
    gc.collect()
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is not None and cuda.is_initialized():
            cuda.empty_cache()
    except Exception:  # of a library in an unknown state: the cell is interrupted all the same
        print(f"freeing the GPU's memory failed:\n{traceback.format_exc()}", file=sys.stderr)


# -------------------------------------------------------------------------------------- countdown


class Countdown:
    """Counts down, in the running cells, the time between a scheduler's SIGTERM and its SIGKILL.

    Slurm's setting KillWait is that time. If Slurm does not answer, its default is assumed; for other schedulers there
    is no countdown. Starting it again while it runs changes nothing.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._thread: Optional[threading.Thread] = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the countdown in a thread. Any thread may call this."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._count, args=(time.monotonic(),), daemon=True)
                self._thread.start()

    def _count(self, start: float) -> None:
        wait = kill_wait()
        if wait is None:
            return
        for step in COUNTDOWN_STEPS:
            pause = start + wait - step - time.monotonic()
            if pause < 0:
                continue
            time.sleep(pause)
            self._say(f"SIGKILL in about {step:.0f} s.")


def kill_wait() -> Optional[float]:
    """Return the seconds between Slurm's SIGTERM and its SIGKILL; None outside of a Slurm job."""
    if "SLURM_JOB_ID" not in os.environ:
        return None
    runtime, command = AgentRuntime(), ["scontrol", "show", "config"]
    limit = Limit(runtime.monotonic() + _SCONTROL_TIMEOUT)
    try:
        (ended,) = run_programs(runtime, [command], limit)
    except OSError:
        return DEFAULT_KILL_WAIT
    found = _KILL_WAIT.search(ended.text)
    return max(5.0, float(found[1])) if found else DEFAULT_KILL_WAIT  # Slurm waits at least 5 s
