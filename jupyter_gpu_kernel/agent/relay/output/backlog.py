"""The way of the kernel's messages to the hub: directly while it reads, else through the backlog.

The backlog is first in memory, then on disk, up to a cap. A hub that attaches again is told where its replay begins and
ends, because jupyter_server must get it at a limited rate. This module knows neither sockets nor kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Sequence

from ....wire.endpoint import Endpoint, EndpointState
from ....wire.messages import Lane, Message, keeper_message
from ....wire.runtime import Runtime
from ...kernel_settings import KernelSettings
from .memory_queue import MemoryQueue
from .reduction import CANNOT_READ, Reduction, notice
from .spill import Spill, SpillRecord

MIB = 1024 * 1024
_PIECE = MIB
"""Bytes moved to disk at once: few, as other messages wait meanwhile, but more than a line each time."""
OnProblem = Callable[[str], Any]
AHEAD = 2 * 1024 * 1024
"""Bytes passed to the endpoint besides its window: enough to keep any link busy, little to hold in memory."""


class Backlog:
    """`put` messages, `take` their bytes, oldest first. It is true while messages wait. Methods never raise."""

    def __init__(
        self,
        runtime: Runtime,
        folders: Sequence[Path],
        settings: KernelSettings,
        on_problem: OnProblem = lambda text: None,
    ) -> None:
        """Create an empty backlog.

        folders: Where files may be created.
        settings: journal_memory_mib and journal_cap_mib.
        on_problem: Called once for each problem.
        """
        self._runtime = runtime
        self._memory_limit = int(settings.journal_memory_mib * MIB)
        cap = int(settings.journal_cap_mib * MIB)
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
            records = []
            while self._memory and self._memory.size > self._memory_limit - _PIECE:
                records.append(self._memory.pop())
            self._spill.put(records)
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
        if cell.omitted and record.begin >= cell.omitted_from:
            taken.insert(0, notice(self._runtime, cell))
            cell.omitted = 0
        self._memory.release(cell)
        return taken

    def close(self) -> None:
        """Free the disk space."""
        self._spill.close()

    def _oldest(self) -> Optional[SpillRecord]:
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


class Flow:
    """`send` at any time, `feed` before the endpoint is asked for frames, `opened` after a HELLO."""

    def __init__(self, endpoint: Endpoint, backlog: Backlog) -> None:
        self._endpoint = endpoint
        self._backlog = backlog
        self._replay = False

    @property
    def unacknowledged(self) -> int:
        """The approximate number of bytes that the hub has not acknowledged; 0 if it has everything."""
        return self._endpoint.outbox.size + (self._backlog.size or bool(self._backlog))

    @property
    def _attached(self) -> bool:
        return self._endpoint.state is EndpointState.OPEN

    @property
    def _has_room(self) -> bool:
        return self._endpoint.outbox.size < self._endpoint.outbox.window + AHEAD

    def send(self, lane: Lane, message: Message) -> None:
        """Queue a message. In the ORDERED lane it waits behind the backlog; in others, if the hub has left and the
        endpoint holds much."""
        if lane is Lane.ORDERED:
            waits = bool(self._backlog) or not (self._attached and self._has_room)
        else:
            waits = not self._attached and not self._has_room
        if waits:
            self._backlog.put(message)
        else:
            self._endpoint.send(lane, message.encode())

    def opened(self) -> None:
        """A hub has attached, which may have missed messages."""
        self._replay = True
        if self._backlog:
            self._mark("begin")
        self.feed()

    def feed(self) -> None:
        """Pass the backlog on as fast as the hub takes it."""
        while self._attached and self._has_room:
            taken = self._backlog.take()
            for data in taken:
                self._endpoint.send(Lane.ORDERED, data)
            if not taken:
                break
        if self._replay and not self._backlog:
            self._replay = False
            self._mark("end")

    def withdraw(self) -> Iterator[bytes]:
        """Remove and yield every message that was not acknowledged: there may be more than memory should hold."""
        yield from self._endpoint.withdraw()
        while self._backlog:
            yield from self._backlog.take()

    def _mark(self, state: str) -> None:
        self._endpoint.send(Lane.ORDERED, keeper_message(event="replay", state=state).encode())
