"""`ps --wait`: asks for kernels every few seconds until their cells have ended, over dropped links and a killed hub."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import Any

from ...errors import AgentError, GpuKernelError
from ...hub.sanitize import MAX_LINE
from ...wire.texts import one_line
from ..show.watch import ask_repeatedly
from ..terminal import Progress

INTERVAL = 2.0
"""Seconds between two questions. When two answers in succession show no running cell, the cells have ended: some front
ends send the next cell only after the reply to the last one."""
_NUMBER = re.compile(r"[0-9]+")
_ABSENCES = 3
"""The number of answers in succession that do not list a kernel before it counts as gone."""
_QUIET = ("idle", "detached")
Row = dict[str, Any]


class WaitedKernel:
    """Give each answer to `ps` to `take`, until `is_done`. `row`: the last row of the kernel, or {}."""

    def __init__(self, kernel_id: str) -> None:
        self.id = kernel_id
        self.row: Row = {}
        self.is_done = False
        self.problem = ""
        """Why nothing new is known of the kernel."""
        self._was_active = False
        self._quiet_with: Any = None
        """The last cell, if the last answer showed that no cell was running; else None."""
        self._absences = 0

    def take(self, rows: list[Row]) -> None:
        """Take the answer to `ps`. Raises GpuKernelError for a kernel that is not found and never was."""
        row = next((row for row in rows if row.get("id") == self.id and "error" not in row), None)
        if row is None:
            return self._missing([GpuKernelError.from_json(row["error"]) for row in rows if "error" in row])
        self.row, self.problem, self._absences = row, "", 0
        is_quiet = row["state"] in _QUIET and not row.get("cells")
        last = (row.get("last_cell") or {}).get("msg_id", "") if is_quiet else None
        self.is_done = row["state"] == "ended" or (is_quiet and last == self._quiet_with)
        self._quiet_with = last
        self._was_active = self._was_active or not (is_quiet or row["state"] == "away")

    def _missing(self, errors: list[GpuKernelError]) -> None:
        """No node lists the kernel. `errors`: of nodes that could not be asked, and may have it."""
        cause, remedy = f"no node has a kernel {self.id}", f"“jupyter gpu-kernel logs {self.id}” may say why."
        problem = errors[0] if errors else AgentError(cause, remedy=remedy)
        if not self.row:
            raise problem
        self.problem = one_line(problem.cause, MAX_LINE)
        self._absences = 0 if errors else self._absences + 1
        if self._absences == _ABSENCES:
            self.is_done, self.row = True, {**self.row, "state": "ended", "cause": f"{cause}: {remedy}"}

    @property
    def line(self) -> str:
        """What is waited for."""
        cells = self.row.get("cells") or 0
        more = f", {cells} cells left" if cells > 1 else ""
        return f"{self._node} ({self.id}): {self.problem or self.row['state'] + more}"

    @property
    def fault(self) -> GpuKernelError | None:
        """Why the last cell did not end well, as far as that is known; None if it did, or if there was no cell."""
        cell, cause = self.row.get("last_cell"), ""
        if self.row["state"] == "ended":
            cause = f"kernel {self.id} has ended: {self.row.get('cause') or '?'}"
        elif cell is None and self._was_active:
            cause = (
                f"how the last cell of kernel {self.id} ended is unknown: its keeper was replaced meanwhile"
            )
        elif cell is not None and cell["status"] != "ok":
            cause = f"the last cell of kernel {self.id} failed: {cell.get('error') or '?'}"
        return GpuKernelError(one_line(cause, MAX_LINE), hop=self._node) if cause else None

    @property
    def _node(self) -> str:
        return one_line(str(self.row.get("hop") or self.row.get("node")))


def wait(
    kernels: Sequence[str], specs: list[Row], rows: list[Row], timeout: float | None
) -> list[WaitedKernel]:
    """Return the kernels when their cells have ended, or after `timeout` seconds. `specs`: all kernelspecs; `rows`:
    what `ps` says now."""
    waited, begin = [WaitedKernel(kernel) for kernel in dict.fromkeys(kernels)], time.monotonic()
    for one in waited:
        one.take(rows)
    progress, printed = Progress(lines=True), ""
    while remaining := [one for one in waited if not one.is_done]:
        left = INTERVAL if timeout is None else begin + timeout - time.monotonic()
        if left <= 0:
            break
        line = "; ".join(one.line for one in remaining)
        if sys.stderr.isatty() or _NUMBER.sub("", line) != printed:  # a line for each change, but of numbers
            printed = _NUMBER.sub("", line)
            progress({"step": line})
        time.sleep(min(INTERVAL, left))
        names = {one.row.get("name") for one in remaining}
        known = [spec for spec in specs if spec["name"] in names]
        try:
            rows = ask_repeatedly("ps", specs=known if len(known) == len(names) else specs)
            for one in remaining:
                one.take(rows)
        except GpuKernelError as error:  # it is asked again
            for one in remaining:
                one.problem = one_line(error.cause, MAX_LINE)
    progress.clear()
    return waited
