"""One kernel for whose cells `ps --wait` waits: what is known of it, and how its last cell ended."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from ...errors import AgentError, GpuKernelError
from ...hub.sanitize import MAX_LINE
from ...wire.texts import duration, one_line

_ABSENCES = 3
"""The number of answers in succession that do not list a kernel before it counts as gone."""
_QUIET = ("idle", "detached")


class WaitStatus(str, enum.Enum):
    """How the last cell of a kernel ended. NONE: there was no cell. UNKNOWN: nobody has seen its end."""

    OK = "ok"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    NONE = "none"
    UNKNOWN = "unknown"
    ENDED = "ended"
    TIMEOUT = "timeout"


class Outcome(NamedTuple):
    """The result for one kernel. seconds: for which the cell ran; error: what ended it, or the kernel."""

    id: str
    node: str
    status: WaitStatus
    error: str = ""
    execution_count: int | None = None
    seconds: float | None = None
    finished: float | None = None
    code: str = ""

    def to_json(self) -> dict[str, Any]:
        """A row of `ps --wait --json`."""
        return {**self._asdict(), "status": self.status.value}

    @property
    def text(self) -> str:
        """One line for the user."""
        kernel = f"Kernel {self.id}" + (f" on {self.node}" if self.node else "")
        simple = {
            WaitStatus.NONE: "no cell has run yet",
            WaitStatus.UNKNOWN: f"no cell is running. How the last one ended is unknown: {self.error}",
            WaitStatus.ENDED: f"the kernel has ended: {self.error}",
            WaitStatus.TIMEOUT: self.error,
        }
        if self.status in simple:
            return one_line(f"{kernel}: {simple[self.status]}", MAX_LINE)
        number = f" [{self.execution_count}]" if self.execution_count else ""
        lasted = "" if self.seconds is None else f" after {duration(self.seconds)}"
        how = {WaitStatus.OK: "ok", WaitStatus.INTERRUPTED: "interrupted"}.get(
            self.status, self.error or "error"
        )
        return one_line(f"{kernel}: the last cell{number} ended{lasted}: {how}", MAX_LINE)


class WaitedKernel:
    """Give each answer to `ps` to `take`, until there is an `outcome`."""

    def __init__(self, kernel_id: str) -> None:
        self.id = kernel_id
        self.outcome: Outcome | None = None
        self.problem = ""
        """Why nothing new is known of the kernel."""
        self._row: dict[str, Any] = {}
        self._was_active = False
        self._quiet_with: Any = None
        """The last cell, if the last answer showed that no cell was running; else None."""
        self._absences = 0
        self._may_be_there = False

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

    def take(self, rows: list[dict[str, Any]]) -> bool:
        """Take the answer to `ps`. Return whether the kernel is missing in it, and no error is a reason for that."""
        row = next((row for row in rows if row.get("id") == self.id and "error" not in row), None)
        if row is None:
            return self._is_missing([row for row in rows if "error" in row])
        self._row, self.problem, self._absences = row, "", 0
        self._judge(row)
        return False

    def _is_missing(self, errors: list[dict[str, Any]]) -> bool:
        self._may_be_there = bool(errors)
        if errors:
            error = GpuKernelError.from_json(errors[0]["error"])
            if not self._row:  # it has not been found yet, so this may be a wrong id
                raise error
            self.problem = one_line(error.cause, MAX_LINE)
        in_job = bool(self._row.get("job"))
        return not any(in_job or one["node"] == self.node for one in errors)

    def _judge(self, row: dict[str, Any]) -> None:
        if row["state"] == "ended":
            self.outcome = self.ended(_cause(row) or "?")
        elif row["state"] not in _QUIET or row.get("cells"):
            self._was_active = self._was_active or row["state"] != "away"
            self._quiet_with = None
        else:
            last = (row.get("last_cell") or {}).get("msg_id", "")
            if last == self._quiet_with:
                self.outcome = self._outcome_of_cell(row)
            self._quiet_with = last

    def not_listed(self, error: GpuKernelError | None) -> Outcome | None:
        """The kernel is not listed, and its story does not contain its end. Raises the error for one that was never
        found."""
        if not self._row:
            raise error or AgentError(
                f"no node has a kernel {self.id}", remedy="“jupyter gpu-kernel ps” lists the kernels."
            )
        if self._may_be_there:  # one machine can have several names, of which another one was asked
            return None
        self._absences += 1
        self.problem = "it is not listed"
        return self.ended("no node has it any more") if self._absences >= _ABSENCES else None

    def ended(self, why: str) -> Outcome:
        """The outcome for a kernel that has ended."""
        return self._outcome(WaitStatus.ENDED, why)

    def timed_out(self, seconds: float) -> Outcome:
        """The outcome at the time limit."""
        state = self.problem or self._row.get("state") or "?"
        return self._outcome(WaitStatus.TIMEOUT, f"still {state} after {duration(seconds)}")

    def _outcome_of_cell(self, row: dict[str, Any]) -> Outcome:
        cell = row.get("last_cell")
        if cell is None and self._was_active:
            return self._outcome(
                WaitStatus.UNKNOWN, "the process that manages the kernel was replaced meanwhile"
            )
        if cell is None:
            return self._outcome(WaitStatus.NONE)
        error = str(cell.get("error") or "")
        status = WaitStatus.OK if cell["status"] == "ok" else WaitStatus.ERROR
        if error.partition(":")[0] == "KeyboardInterrupt":
            status = WaitStatus.INTERRUPTED
        begun, ended = cell.get("started"), cell.get("finished")
        return Outcome(
            self.id,
            self.node,
            status,
            one_line(error, MAX_LINE),
            execution_count=cell.get("execution_count"),
            seconds=round(max(0.0, ended - begun), 3) if begun and ended else None,
            finished=ended,
            code=str(cell.get("code") or ""),
        )

    def _outcome(self, status: WaitStatus, error: str = "") -> Outcome:
        return Outcome(self.id, self.node, status, one_line(error, MAX_LINE))


def outcome_of_story(kernel: WaitedKernel, story: list[dict[str, Any]]) -> Outcome | None:
    """The outcome if the kernel's story contains its end."""
    lives = [row for row in story if row.get("event") in ("start", "end")]
    if not lives or lives[-1]["event"] != "end":
        return None
    return kernel.ended(_cause(lives[-1]) or str(lives[-1].get("text") or "?"))


def _cause(row: dict[str, Any]) -> str:
    """Why a kernel has ended, by a row of `ps` or the last line of its story."""
    evidence = f" ({row['evidence']})" if row.get("evidence") else ""
    return f"{row['cause']}{evidence}" if row.get("cause") else ""
