"""`ps --wait`: asks for kernels every few seconds until their cells have ended, over dropped links and a killed hub.

`WaitedKernel` has what is known of one kernel, and how its last cell ended."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...errors import AgentError, GpuKernelError
from ...hub.sanitize import MAX_LINE
from ...wire.texts import duration, one_line
from ..show.watch import ask_repeatedly
from ..terminal import Progress

INTERVAL = 2.0
"""Seconds between two questions. When two answers in succession show no running cell, the cells have ended: some front
ends send the next cell only after the reply to the last one."""
_NUMBER = re.compile(r"[0-9]+")
_EXIT = {"ok": 0, "none": 0, "timeout": 124}
_ABSENCES = 3
"""The number of answers in succession that do not list a kernel before it counts as gone."""
_QUIET = ("idle", "detached")
_REPLACED = "the process that manages the kernel was replaced meanwhile"
Row = dict[str, Any]


class Outcome(NamedTuple):
    """The result for one kernel, a row of `ps --wait --json`.

    status: How the last cell ended: ok, error or interrupted; none: there was no cell; unknown: nobody has seen its
    end; ended: the kernel has ended; timeout: the time limit has passed. error: What ended the cell, or the kernel.
    seconds: For which the cell ran.
    """

    id: str
    node: str
    status: str
    error: str = ""
    execution_count: int | None = None
    seconds: float | None = None
    finished: float | None = None
    code: str = ""

    @property
    def text(self) -> str:
        """One line for the user."""
        kernel = f"Kernel {self.id}" + (f" on {self.node}" if self.node else "")
        simple = {
            "none": "no cell has run yet",
            "unknown": f"no cell is running. How the last one ended is unknown: {self.error}",
            "ended": f"the kernel has ended: {self.error}",
            "timeout": self.error,
        }
        if self.status in simple:
            return one_line(f"{kernel}: {simple[self.status]}", MAX_LINE)
        number = f" [{self.execution_count}]" if self.execution_count else ""
        lasted = "" if self.seconds is None else f" after {duration(self.seconds)}"
        how = (self.error or "error") if self.status == "error" else self.status
        return one_line(f"{kernel}: the last cell{number} ended{lasted}: {how}", MAX_LINE)


class WaitedKernel:
    """Give each answer to `ps` to `take`, until there is an `outcome`. `read_log(kernel)` returns the rows of `logs`
    about this kernel."""

    def __init__(self, kernel_id: str, read_log: Callable[[WaitedKernel], list[Row]]) -> None:
        self.id = kernel_id
        self.outcome: Outcome | None = None
        self.problem = ""
        """Why nothing new is known of the kernel."""
        self._read_log = read_log
        self._row: Row = {}
        self._was_active = False
        self._quiet_with: Any = None
        """The last cell, if the last answer showed that no cell was running; else None."""
        self._absences = 0

    @property
    def name(self) -> str:
        """The name of the kernel's kernelspec; "" if unknown."""
        return str(self._row.get("name") or "")

    @property
    def node(self) -> str:
        """The node on which the kernel runs; "" if unknown."""
        return one_line(str(self._row.get("hop") or self._row.get("node") or ""))

    @property
    def line(self) -> str:
        """What is waited for."""
        where = f"{self.node or 'kernel'} ({self.id})"
        if self.problem:
            return f"{where}: {self.problem}"
        state, cells = one_line(str(self._row.get("state") or "looking for it")), self._row.get("cells")
        more = f", {cells} cells left" if isinstance(cells, int) and cells > 1 else ""
        return f"{where}: {state}{more}"

    def take(self, rows: list[Row]) -> None:
        """Take the answer to `ps`. Raises GpuKernelError for a kernel that is not found and never was."""
        row = next((row for row in rows if row.get("id") == self.id and "error" not in row), None)
        if row is None:
            return self._missing([row for row in rows if "error" in row])
        self._row, self.problem, self._absences = row, "", 0
        if row["state"] == "ended":
            self.outcome = self._outcome("ended", _cause(row) or "?")
        elif row["state"] not in _QUIET or row.get("cells"):
            self._was_active = self._was_active or row["state"] != "away"
            self._quiet_with = None
        else:
            last = (row.get("last_cell") or {}).get("msg_id", "")
            if last == self._quiet_with:
                self.outcome = self._outcome_of_cell(row.get("last_cell"))
            self._quiet_with = last

    def _missing(self, errors: list[Row]) -> None:
        """No node lists the kernel. `errors`: the rows of nodes that could not be asked."""
        problems = [GpuKernelError.from_json(row["error"]) for row in errors]
        if problems and not self._row:  # it has not been found yet, so this may be a wrong id
            raise problems[0]
        self.problem = one_line(problems[0].cause if problems else "it is not listed", MAX_LINE)
        if any(self._row.get("job") or row["node"] == self.node for row in errors):
            return
        if end := self._end_in_log():
            self.outcome = self._outcome("ended", _cause(end) or str(end.get("text") or "?"))
        elif not errors:  # else one machine can have several names, of which another one was asked
            self._absences += 1
            if self._absences >= _ABSENCES:
                self.outcome = self._outcome("ended", "no node has it any more")

    def _end_in_log(self) -> Row | None:
        """Return the line about the kernel's end; None if there is none."""
        try:
            log = self._read_log(self)
        except GpuKernelError:
            if not self._row:
                raise
            return None
        lives = [row for row in log if row.get("event") in ("start", "end")]
        if not lives and not self._row:
            raise AgentError(
                f"no node has a kernel {self.id}", remedy="“jupyter gpu-kernel ps” lists the kernels."
            )
        return lives[-1] if lives and lives[-1]["event"] == "end" else None

    def timed_out(self, seconds: float) -> Outcome:
        """The outcome at the time limit."""
        state = self.problem or self._row.get("state") or "?"
        return self._outcome("timeout", f"still {state} after {duration(seconds)}")

    def _outcome_of_cell(self, cell: Row | None) -> Outcome:
        if cell is None:
            return self._outcome("unknown", _REPLACED) if self._was_active else self._outcome("none")
        error = str(cell.get("error") or "")
        status = "interrupted" if error.partition(":")[0] == "KeyboardInterrupt" else "error"
        begun, ended = cell.get("started"), cell.get("finished")
        return self._outcome("ok" if cell["status"] == "ok" else status, error)._replace(
            execution_count=cell.get("execution_count"),
            seconds=round(max(0.0, ended - begun), 3) if begun and ended else None,
            finished=ended,
            code=str(cell.get("code") or ""),
        )

    def _outcome(self, status: str, error: str = "") -> Outcome:
        return Outcome(self.id, self.node, status, one_line(error, MAX_LINE))


def _cause(row: Row) -> str:
    """Why a kernel has ended, by a row of `ps` or the last line of its story."""
    evidence = f" ({row['evidence']})" if row.get("evidence") else ""
    return f"{row['cause']}{evidence}" if row.get("cause") else ""


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """0 if each kernel's last cell ended well, 1 if one did not, else 124 at the time limit, as of timeout(1)."""
    statuses = {_EXIT.get(one.status, 1) for one in outcomes}
    return next((status for status in (1, 124) if status in statuses), 0)


class CellWait:
    """Waits for kernels. `specs`: all kernelspecs."""

    def __init__(self, kernels: Sequence[str], specs: list[dict[str, Any]]) -> None:
        self._kernels = [WaitedKernel(kernel, self._log_of) for kernel in dict.fromkeys(kernels)]
        self._specs = specs
        self._begin = time.monotonic()
        self._progress = Progress(lines=True)
        self._printed = ""

    def run(self, first: list[dict[str, Any]], timeout: float | None) -> list[Outcome]:
        """Return how the cells of each kernel ended. `first`: what `ps` says now."""
        for kernel in self._kernels:
            kernel.take(first)
        try:
            while remaining := [one for one in self._kernels if one.outcome is None]:
                seconds = time.monotonic() - self._begin
                if timeout is not None and seconds >= timeout:
                    break
                self._show("; ".join(one.line for one in remaining))
                time.sleep(INTERVAL if timeout is None else min(INTERVAL, max(0.01, timeout - seconds)))
                self._ask_for(remaining)
        finally:
            self._progress.clear()
        return [one.outcome or one.timed_out(timeout or 0.0) for one in self._kernels]

    def _show(self, text: str) -> None:
        """Show what is waited for: on a terminal with the time so far, else a line for each change, but of numbers."""
        if sys.stderr.isatty():
            self._progress({"step": f"{duration(round(time.monotonic() - self._begin))}   {text}"})
        elif (kind := _NUMBER.sub("", text)) != self._printed:
            self._printed = kind
            self._progress({"step": text})

    def _ask_for(self, remaining: list[WaitedKernel]) -> None:
        """Ask for these kernels. A hub or a node that cannot be asked now is asked later."""
        try:
            rows = ask_repeatedly("ps", specs=self._specs_of(remaining))
        except GpuKernelError as error:
            for one in remaining:
                one.problem = one_line(error.cause, MAX_LINE)
            return
        for one in remaining:
            one.take(rows)

    def _log_of(self, kernel: WaitedKernel) -> list[Row]:
        """Return the rows of `logs` from the node of the kernel's kernelspec, as far as that is known."""
        rows: list[Row] = ask_repeatedly(
            "logs", kernel=kernel.id, specs=self._specs_of([kernel]), patience=None
        )
        return rows

    def _specs_of(self, kernels: list[WaitedKernel]) -> list[dict[str, Any]]:
        """The kernelspecs of these kernels, as far as they are known; else all."""
        names = {one.name for one in kernels}
        known = [spec for spec in self._specs if spec["name"] in names]
        return known if names <= {spec["name"] for spec in known} else self._specs
