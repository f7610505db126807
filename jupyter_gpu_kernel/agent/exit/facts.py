"""Collects the facts from which reason.py explains the end of a kernel."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, List, Mapping, Optional, Tuple

from ..loop import Loop, Timer
from ..procfs import boot_id
from .memory import Cgroup, node_mib, node_oom_kills
from .node_checks import (
    gpu_problem,
    memory_daemon,
    own_cgroup,
    scheduler_job,
    unwritable_folders,
)
from .reason import CRASHES, UNKNOWN, Facts

MEMORY_INTERVAL = 2.0
"""Seconds between two samples of the node's memory; the last MEMORY_SAMPLES count."""
MEMORY_SAMPLES = 10
SIGTERM_RECENT = 120.0
"""Seconds after a SIGTERM within which a SIGKILL is taken for its consequence."""
_STDERR_TAIL = 256 * 1024


class OomCounters:
    """Counts what the OOM killer does from now on: to a process's cgroup, and on the whole node."""

    def __init__(self, pid: int) -> None:
        self._cgroup = Cgroup(pid)
        self._start = self._read()

    def kills(self) -> Tuple[int, int]:
        """The number of processes killed since the start: of this cgroup, and on the node."""
        now = self._read()
        return now[0] - self._start[0], now[1] - self._start[1]

    def limit_mib(self) -> Optional[int]:
        """The memory limit of the cgroup; None if it has none."""
        return self._cgroup.limit_mib()

    def _read(self) -> Tuple[int, int]:
        return self._cgroup.oom_kills() or 0, node_oom_kills() or 0


class FactCollector:
    """Observes a kernel's processes: `started(pid)` for each, and `facts(…)` once it has ended."""

    def __init__(self, loop: Loop, stderr: Path) -> None:
        """`stderr`: the file with the standard error of the kernel's process."""
        self._loop = loop
        self._stderr = stderr
        self._signal = 0  # the last signal that was sent for a front end
        self._stop_reason = ""
        self._oom_counters = OomCounters(os.getpid())
        self._available: Deque[float] = deque(maxlen=MEMORY_SAMPLES)
        self._timer: Optional[Timer] = None

    def started(self, pid: int) -> Dict[str, Any]:
        """Observe this process. Returns what the story tells of its start: {boot, cgroup, job, keeper}."""
        self._signal, self._stop_reason = 0, ""
        self._oom_counters = OomCounters(pid)
        self._available.clear()
        self._cancel_timer()
        self._sample_memory()
        return {
            "cgroup": own_cgroup(),
            "job": scheduler_job(os.environ),
            "keeper": os.getpid(),
            "boot": boot_id(),
        }

    def signal_sent(self, number: int) -> None:
        """Note that this signal was sent to the kernel for a front end."""
        self._signal = number

    def stop_requested(self, reason: str) -> None:
        """Note that the kernel was requested to stop, for this reason."""
        self._stop_reason = reason

    def facts(
        self, returncode: int, requested: str = "", sigterm: Optional[Mapping[str, Any]] = None
    ) -> Facts:
        """Return the facts of the process's end. `sigterm`: the story's last entry about a SIGTERM."""
        self._cancel_timer()
        cgroup_kills, node_kills = self._oom_counters.kills()
        return Facts(
            returncode,
            requested,
            self._stop_reason,
            self._signal,
            sigterm=_recent(sigterm),
            cgroup_oom_kills=cgroup_kills,
            node_oom_kills=node_kills,
            limit_mib=self._oom_counters.limit_mib(),
            memory_available=min(self._available, default=None),
            stderr=self._stderr_tail(),
            job=scheduler_job(os.environ),
        )

    def _sample_memory(self) -> None:
        memory = node_mib()
        if memory is not None and memory[1]:
            self._available.append(memory[0] / memory[1])
        self._timer = self._loop.later(MEMORY_INTERVAL, self._sample_memory)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _stderr_tail(self) -> str:
        try:
            data = self._stderr.read_bytes()[-_STDERR_TAIL:]
        except OSError:
            return ""
        text = data.decode("utf-8", "replace")
        return "".join(char for char in text if char.isprintable() or char in "\n\t")


def check_node(facts: Facts, gpus: List[str]) -> Facts:
    """Add what only the node itself shows, where it may be the reason. `gpus`: UUIDs. Blocks for seconds."""
    if facts.returncode in (-signal.SIGKILL, UNKNOWN):
        facts = facts._replace(memory_daemon=memory_daemon())
    if facts.returncode > 0 or -facts.returncode in CRASHES:
        folders = [os.path.expanduser("~"), tempfile.gettempdir(), "/dev/shm"]
        with contextlib.suppress(OSError):  # the node cannot start another process
            facts = facts._replace(unwritable=unwritable_folders(folders))
            facts = facts._replace(gpu_problem=gpu_problem(gpus))
    return facts


def _recent(sigterm: Optional[Mapping[str, Any]]) -> Mapping[str, Any]:
    if not sigterm or time.time() - float(sigterm.get("time", 0)) > SIGTERM_RECENT:
        return {}
    clock = time.strftime("%H:%M:%S", time.localtime(float(sigterm["time"])))
    return dict(sigterm, clock=clock)
