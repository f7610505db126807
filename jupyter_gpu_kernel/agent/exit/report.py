"""Reports a kernel's end for its keeper: collects facts while the kernel runs, finds the reason when it has ended,
writes it into the story, and ends leftover processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple

from ..gpus.devices.gpu_reader import gpu_reader
from ..kernel_context import KernelContext
from ..paths import read_tail
from ..system.loop import Loop
from ..system.procfs import boot_id
from .descendants import Cleanup
from .node_checks import (
    PROC,
    Cgroup,
    gpu_problem,
    memory_daemon,
    node_mib,
    node_oom_kills,
    own_cgroup,
    scheduler_job,
    unwritable_folders,
)
from .reason import CRASHES, UNKNOWN, EndFacts, ExitReason, explain

SIGTERM_RECENT = 120.0
"""Seconds after a SIGTERM within which a SIGKILL is taken for its consequence."""
_STDERR_TAIL = 256 * 1024
MAX_AGE = 20.0
"""Seconds for which a sample of the memory counts."""
INTERVALS = (2.0, 10.0)
"""The least and the most seconds between two samples of the memory: each one wakes an idle keeper."""
_FASTEST_USE = 2048
"""MiB per second: a thread hardly uses up memory faster, as the system clears it first."""


class ExitReport:
    """Observes each process of a kernel from its start on, and reports its end. `reason` is that of the last end."""

    def __init__(self, context: KernelContext) -> None:
        self.cleanup = Cleanup(context)
        self.reason = ExitReason("")
        self.guard = True
        """Whether the guard against SIGTERM is on in the present process."""
        self.signal_sent = 0
        """The last signal that was sent to this process for a front end."""
        self.stop_reason = ""
        """The reason given with a request to stop this process."""
        self._loop = context.loop
        self._story = context.story
        self._stderr = context.folder / "stderr"

    def process_started(self, pid: int, guard: bool) -> Dict[str, Any]:
        """Observe this process of the kernel. Return what the story tells of its start: {boot, cgroup, job, keeper}.

        `guard`: whether its guard against SIGTERM is on.
        """
        self.guard, self.signal_sent, self.stop_reason = guard, 0, ""
        self._cgroup = Cgroup(pid)
        self._oom_kills_before = self._oom_kills()
        self._memory = MemorySamples(self._loop)
        return {
            "cgroup": own_cgroup(),
            "job": scheduler_job(os.environ),
            "keeper": os.getpid(),
            "boot": boot_id(),
        }

    def guard_switched(self, on: bool) -> None:
        """Note that the guard was switched on or off in the kernel."""
        self.guard = on

    def explain(
        self,
        returncode: int,
        requested: str,
        sigterm: Mapping[str, Any],
        gpus: List[str],
        done: Callable[[str], None],
    ) -> None:
        """Find the reason why the process ended, and call `done` with the sentence for the kernel's cells.

        It is called at once if the end was requested; otherwise after checks of the node, which may take seconds.

        requested: "restart" or "shutdown"; "" if the kernel ended by itself.
        sigterm: The story's last entry about a SIGTERM.
        gpus: The UUIDs of the kernel's GPUs.
        """
        leftovers = self.cleanup.terminate()
        facts = self._facts(returncode, requested, sigterm)

        def tell(facts: EndFacts) -> None:
            self.reason = explain(facts)
            text = f"the kernel ended: {self.reason}"
            self._story.tell("end", text, returncode=returncode, asked=requested, **self.reason._asdict())
            for process in leftovers:
                self._story.tell(
                    "leftover", f"ending a leftover process: {process.command} (pid {process.pid})"
                )
            done(text)

        if requested:
            tell(facts)
        else:
            self._loop.run_in_thread(lambda: self._check_node(facts, gpus), tell)

    def _check_node(self, facts: EndFacts, gpus: List[str]) -> EndFacts:
        """Add what only the node itself shows, where it may be the reason. `gpus`: UUIDs. Blocks for seconds."""
        if facts.returncode in (-signal.SIGKILL, UNKNOWN):
            facts = facts._replace(memory_daemon=memory_daemon())
        if facts.returncode > 0 or -facts.returncode in CRASHES:
            folders = [os.path.expanduser("~"), tempfile.gettempdir(), "/dev/shm"]
            smi = gpu_reader(self._loop.runtime)
            with contextlib.suppress(OSError):  # the node cannot start another process
                facts = facts._replace(unwritable=unwritable_folders(self._loop.runtime, folders))
                facts = facts._replace(gpu_problem=gpu_problem(smi, gpus))
        return facts

    def _facts(self, returncode: int, requested: str, sigterm: Mapping[str, Any]) -> EndFacts:
        """Return what is known of the end of the process without checks of the node."""
        self._memory.stop()
        kills = [now - before for now, before in zip(self._oom_kills(), self._oom_kills_before)]
        return EndFacts(
            returncode,
            requested,
            self.stop_reason,
            self.signal_sent,
            self.guard,
            sigterm=_recent(sigterm, self._loop.runtime.time()),
            cgroup_oom_kills=kills[0],
            node_oom_kills=kills[1],
            limit_mib=self._cgroup.limit_mib(),
            memory_available=self._memory.least,
            stderr=read_tail(self._stderr, _STDERR_TAIL),
            job=scheduler_job(os.environ),
        )

    def _oom_kills(self) -> Tuple[int, int]:
        """The processes that the OOM killer has killed so far: of the cgroup, and on the node."""
        return self._cgroup.oom_kills() or 0, node_oom_kills() or 0


def _recent(sigterm: Mapping[str, Any], now: float) -> Mapping[str, Any]:
    if not sigterm or now - float(sigterm.get("time", 0)) > SIGTERM_RECENT:
        return {}
    clock = time.strftime("%H:%M:%S", time.localtime(float(sigterm["time"])))
    return dict(sigterm, clock=clock)


class MemorySamples:
    """Samples of the node's memory while a kernel runs: when something has killed the kernel, the memory is free again.

    They are taken from the creation on until `stop`, more often where the memory could be used up soon.
    """

    def __init__(self, loop: Loop, meminfo: Path = PROC / "meminfo") -> None:
        self._loop = loop
        self._meminfo = meminfo
        self._samples: Deque[Tuple[float, float]] = deque(maxlen=int(MAX_AGE / INTERVALS[0]))  # (time, share)
        self._take()

    @property
    def least(self) -> Optional[float]:
        """The smallest share of the memory that was available lately; None if that is unknown."""
        since = self._loop.runtime.monotonic() - MAX_AGE
        return min((share for time, share in self._samples if time >= since), default=None)

    def stop(self) -> None:
        """Take no more samples."""
        self._timer.cancel()

    def _take(self) -> None:
        least, most = INTERVALS
        memory = node_mib(self._meminfo)
        if memory is not None and memory[1]:
            available, total = memory
            self._samples.append((self._loop.runtime.monotonic(), available / total))
            most = min(most, available / _FASTEST_USE)
        self._timer = self._loop.later(max(least, most), self._take)
