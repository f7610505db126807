"""`ps --wait`: asks for kernels every few seconds until their cells have ended, over dropped links and a killed hub."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import Any

from ...errors import GpuKernelError
from ...hub.sanitize import MAX_LINE
from ...wire.texts import duration, one_line
from ..show.watch import ask_repeatedly
from ..terminal import Progress
from .waited_kernel import Outcome, Row, WaitedKernel

INTERVAL = 2.0
"""Seconds between two questions. When two answers in succession show no running cell, the cells have ended: some front
ends send the next cell only after the reply to the last one."""
_NUMBER = re.compile(r"[0-9]+")
_EXIT = {"ok": 0, "none": 0, "timeout": 124}


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
