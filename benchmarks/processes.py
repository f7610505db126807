"""What processes of this machine cost: memory, threads, descriptors and CPU time, from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """Of one process, or the sum over several. `mib`: resident memory; `files`: open descriptors, 0 if unreadable."""

    mib: float
    threads: int
    files: int
    cpu: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


def cost(*pids: int) -> Cost:
    """Return what these processes cost now, and the CPU seconds that they have used so far."""
    costs = [_cost(pid) for pid in pids]
    return Cost(
        sum(one.mib for one in costs),
        sum(one.threads for one in costs),
        sum(one.files for one in costs),
        sum(one.cpu for one in costs),
    )


def children(pid: int) -> list[int]:
    """Return the processes that this one has started, and those that they have."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *children(child)]
    return found


def _cost(pid: int) -> Cost:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    try:
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:  # the hub's memory is private, unless root asks
        files = 0
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    return Cost(int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), files, cpu)
