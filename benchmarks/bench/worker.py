"""Measures the kernels of one way, in a process of its own: a front end with jupyter_client and nothing else.

    python worker.py KERNELSPEC

Reads one measure's name per line, and prints a JSON object with its values in seconds for each, or {"error": …}.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable

from kernel import Kernel

CELLS = 200
CELLS_SECONDS = 4.0
LINES = 100_000
DISPLAY = 50_000_000


class Worker:
    """A kernel that stays for the measures of a running one, and kernels that come and go for the others."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kernel: Kernel | None = None

    def close(self) -> dict[str, float]:
        kernel, self._kernel = self._kernel, None
        return {"shutdown": kernel.close()} if kernel else {}

    @property
    def kernel(self) -> Kernel:
        if self._kernel is None:
            self._kernel = Kernel(self._name)
            for _ in range(20):
                self._kernel.cell("pass")
        return self._kernel

    def execute(self) -> dict[str, float]:
        """Empty cells, one after the other: 200, or on a long path as many as fit into some seconds."""
        self.kernel.cell("pass")
        trips: list[float] = []
        while len(trips) < CELLS and sum(trips) < CELLS_SECONDS:
            trips.append(self.kernel.cell("pass"))
        trips.sort()
        return {"execute_p50": trips[len(trips) // 2], "execute_p99": trips[int(len(trips) * 0.99)]}

    def lines(self) -> dict[str, float]:
        return {"lines_100k": self.kernel.cell(f"for _ in range({LINES}): print('x' * 99)", size=LINES * 100)}

    def display(self) -> dict[str, float]:
        return {"display_50mb": self._display(DISPLAY)}

    def sizes(self) -> dict[str, float]:
        """Displays of one size after the other, and code of 1 MB."""
        sizes = {"1kb": 1_000, "10kb": 10_000, "100kb": 100_000, "1mb": 1_000_000, "10mb": 10_000_000}
        values = {
            f"display_{name}": sorted(self._display(size) for _ in range(5))[2]
            for name, size in sizes.items()
        }
        code = "#" + "x" * 1_000_000
        values["code_1mb"] = sorted(self.kernel.cell(code) for _ in range(5))[2]
        return values

    def start(self) -> dict[str, float]:
        """A kernel beside the one that may run already, so that the connection is there."""
        assert self.kernel
        kernel = Kernel(self._name)
        kernel.close()
        return {"start_ready": kernel.seconds["ready"], "start_first_cell": kernel.seconds["first_cell"]}

    def restart(self) -> dict[str, float]:
        return {"restart": self.kernel.restart()}

    def _display(self, size: int) -> float:
        code = f"from IPython.display import display; display({{'text/plain': 'x' * {size}}}, raw=True)"
        return self.kernel.cell(code, size=size)


def main(name: str) -> None:
    """Answer until stdin ends. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(name)
    measures: dict[str, Callable[[], dict[str, float]]] = {
        measure.__name__: measure
        for measure in (
            worker.execute,
            worker.lines,
            worker.display,
            worker.sizes,
            worker.start,
            worker.restart,
            worker.close,
        )
    }
    for line in sys.stdin:
        answer: dict[str, float | str]
        try:
            answer = {**measures[line.strip()]()}
        except Exception as error:  # another way is measured all the same
            traceback.print_exc()
            with contextlib.suppress(Exception):
                worker.close()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
    worker.close()


if __name__ == "__main__":
    main(sys.argv[1])
