"""One kernel for whose cells `ps --wait` waits: what is known of it, and how its last cell ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...errors import AgentError, GpuKernelError
from ...hub.sanitize import MAX_LINE
from ...wire.texts import duration, one_line

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
