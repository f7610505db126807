"""The backlog: the kernel's messages while nobody reads them, first in memory, then on disk, up to a cap.

This module knows neither link nor kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from ....wire.messages import Message
from ....wire.runtime import Runtime
from .memory_queue import MemoryQueue
from .reduction import CANNOT_READ, Reduction, notice
from .spill import Record, Spill

MIB = 1024 * 1024
MEMORY_MIB = 8
CAP_MIB = 512
OnProblem = Callable[[str], Any]


class Backlog:
    """`put` messages, `take` their bytes, oldest first. It is true while messages wait. Methods never raise."""

    def __init__(
        self,
        runtime: Runtime,
        folders: Sequence[Path],
        settings: Dict[str, Any],
        on_problem: OnProblem = lambda text: None,
    ) -> None:
        """Create an empty backlog.

        folders: Where files may be created.
        settings: journal_memory_mib and journal_cap_mib.
        on_problem: Called once for each problem.
        """
        self._runtime = runtime
        self._memory_limit = int(float(settings.get("journal_memory_mib", MEMORY_MIB)) * MIB)
        cap = int(float(settings.get("journal_cap_mib", CAP_MIB)) * MIB)
        self._spill = Spill(folders, cap, self._memory_limit)
        self._memory = MemoryQueue()
        self._reduction = Reduction(self._memory, self._spill, self._memory_limit, self._report)
        self._on_problem = on_problem
        self._reported = ""

    def __bool__(self) -> bool:
        return bool(self._memory or self._spill.segments)

    def __repr__(self) -> str:
        return f"<Backlog memory={self._memory.size} disk={self._spill.size}>"

    @property
    def size(self) -> int:
        """The approximate size of the messages that wait, in bytes."""
        return self._memory.size + self._spill.size

    def put(self, message: Message) -> None:
        """Add a message."""
        self._memory.put(message)
        if self._memory.size > self._memory_limit:
            self._spill.put(self._memory.pop_all())
            if self._spill.full:
                self._report(
                    f"output that waits for a front end cannot be written to disk: {self._spill.full}"
                )
            self._reduction.run()

    def take(self) -> List[bytes]:
        """Remove and return the oldest message, perhaps with a notice before it; [] if none waits."""
        record = self._oldest()
        if record is None:
            self._reported = ""
            return []
        cell = self._memory.cells.get(record.cell)
        if cell is None:  # its beginning was on a disk that lost it
            return [record.data]
        taken = [record.data]
        if cell.left_out and record.begin >= cell.left_out_at:
            taken.insert(0, notice(self._runtime, cell, record.data))
            cell.left_out = 0
        self._memory.release(cell)
        return taken

    def close(self) -> None:
        """Free the disk space."""
        self._spill.close()

    def _oldest(self) -> Optional[Record]:
        try:
            record = self._spill.take()
        except (OSError, EOFError) as error:
            self._report(CANNOT_READ.format(error))
            return self._oldest()
        if record is None and self._memory:
            record = self._memory.pop()
        return record

    def _report(self, text: str) -> None:
        if text != self._reported:
            self._reported = text
            self._on_problem(text)
