"""Calls the user's functions when a cell that took long has ended, with or without a front end.

One thread calls them one after another, in the order in which the cells end, so that no cell waits for them. This
module does not know who shows errors.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ...wire.texts import duration
from .hooks import is_same

AFTER = 60.0
"""Seconds that a cell must have taken, if nobody says otherwise."""
EXIT_TIMEOUT = 4.0
"""Seconds that the functions have when the kernel is shut down; the keeper kills it a second later."""
_LINE = 200


class Cell(NamedTuple):
    """A cell that has ended: what the functions get. `_asdict()` makes a dict of it, for JSON.

    text: A sentence about it: "Cell [7] on gpu2 ended after 2 h 5 min: ok".
    status: "ok", "error" or "interrupted".
    error: The exception: "ValueError: no such layer"; "" if there was none.
    seconds: How long it ran.
    execution_count: Its number.
    code: Its first line.
    started, finished: Seconds since the epoch.
    node: The name of the machine.
    kernel: The kernel's ID.
    """

    text: str
    status: str
    error: str
    seconds: float
    execution_count: Optional[int]
    code: str
    started: float
    finished: float
    node: str
    kernel: str


Function = Callable[[Cell], object]
_Call = Tuple[Function, Cell, Any]


class DoneFunctions:
    """`add` and `remove` functions; `cell_ended` calls them."""

    def __init__(self, failed: Callable[[Any, str], None]) -> None:
        """`failed(request, text)`: a function failed for the cell of this request. Called on another thread."""
        self._failed = failed
        self._functions: List[Tuple[Function, float]] = []
        self._calls: queue.Queue[_Call] = queue.Queue()
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None

    def add(self, function: Function, after: float) -> None:
        """Add a function; it replaces one of the same name, as when its cell runs again."""
        self.remove(function)
        self._functions = [*self._functions, (function, after)]

    def remove(self, function: Optional[Function]) -> int:
        """Remove a function, or one of the same name; None: all. Return how many there were."""
        kept = [] if function is None else [one for one in self._functions if not is_same(one[0], function)]
        removed = len(self._functions) - len(kept)
        self._functions = kept
        return removed

    @property
    def names(self) -> List[str]:
        """The functions, as status() shows them."""
        return [f"{_name(function)} (after {after:g} s)" for function, after in self._functions]

    def cell_ended(
        self, request: Any, code: str, reply: Dict[str, Any], started: float, seconds: float
    ) -> None:
        """Have the functions called that this cell took long enough for. `started`: seconds since the epoch."""
        due = [function for function, after in self._functions if seconds >= after]
        if not due:
            return
        cell = _cell(code, reply, started, seconds)
        for function in due:
            self._calls.put((function, cell, request))
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # as in a forked process
                self._thread = threading.Thread(target=self._run, name="on-done", daemon=True)
                self._thread.start()

    def finish(self, pid: int) -> None:
        """Let the functions that were to be called return, for at most EXIT_TIMEOUT: the kernel ends.

        `pid`: the kernel's. A process that a cell has forked does not wait.
        """
        if os.getpid() != pid:
            return
        deadline = time.monotonic() + EXIT_TIMEOUT
        with self._calls.all_tasks_done:
            while self._calls.unfinished_tasks and time.monotonic() < deadline:
                self._calls.all_tasks_done.wait(deadline - time.monotonic())

    def _run(self) -> None:
        while True:
            function, cell, request = self._calls.get()
            try:
                function(cell)
            except BaseException:  # also sys.exit(): the thread must go on
                text = (
                    f"A function of gpu_kernel.on_done failed ({_name(function)}):\n{traceback.format_exc()}"
                )
                self._failed(request, text)
            finally:
                self._calls.task_done()


def _cell(code: str, reply: Dict[str, Any], started: float, seconds: float) -> Cell:
    error = ""
    status = "ok" if reply.get("status") == "ok" else "error"
    if status == "error":
        error = f"{reply.get('ename') or 'error'}: {reply.get('evalue') or ''}".rstrip(": ")[:_LINE]
        status = "interrupted" if reply.get("ename") == "KeyboardInterrupt" else status
    count = reply.get("execution_count")
    node = os.uname().nodename
    how = error if status == "error" else status
    number = f" [{count}]" if count else ""
    return Cell(
        text=" ".join(f"Cell{number} on {node} ended after {duration(seconds)}: {how}".split()),
        status=status,
        error=error,
        seconds=round(seconds, 3),
        execution_count=count,
        code=(code.strip().splitlines() or [""])[0][:_LINE],
        started=started,
        finished=started + seconds,
        node=node,
        kernel=os.environ.get("JUPYTER_GPU_KERNEL_ID", ""),
    )


def _name(function: Function) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
