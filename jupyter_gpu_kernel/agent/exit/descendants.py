"""Finds the processes that a kernel has started, and ends them without ever signalling another process.

A kernel's descendants inherit the variable JUPYTER_GPU_KERNEL_ID, also those that leave its session (setsid, nohup,
double forks). Only the user's own processes count, and a process is identified by its pid and start time together.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Iterator, List, NamedTuple, Set, Tuple

from ...wire.texts import one_line
from ..paths import is_kernel_id
from ..system import procfs
from ..system.agent_runtime import AgentRuntime
from ..system.process_control import open_pidfd

if TYPE_CHECKING:
    from ..kernel_context import KernelContext  # which needs ZeroMQ, unlike `attach`

TAG = "JUPYTER_GPU_KERNEL_ID"
"""The variable with the id of the kernel that a process belongs to."""
ROOT = "JUPYTER_GPU_KERNEL_ROOT"
"""The variable with the agent's folder."""
SETUP = "JUPYTER_GPU_KERNEL_SETUP"
"""Replaces TAG for what a kernel's set-up lines started, which outlives restarts of the kernel."""
_WITH_ID = (["serve"], ["succeed"], ["setup"])
"""Our processes that end, or keep, those of a kernel or check, whose id is their last argument."""
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""


class Descendant(NamedTuple):
    """A process that a kernel, or its set-up lines, has started.

    `start`: in clock ticks since the boot; `kernel`, `root`: from its environment.
    """

    pid: int
    start: int
    command: str
    kernel: str
    root: str

    @property
    def alive(self) -> bool:
        """Whether the process still runs (a zombie does not)."""
        return procfs.start_ticks(self.pid) == self.start

    def send(self, runtime: AgentRuntime, number: int) -> None:
        """Send a signal to exactly this process; nothing happens if it has ended, or runs as another user now."""
        try:
            pidfd = open_pidfd(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.alive:
                runtime.signal(self.pid, number, pidfd)
        finally:
            if pidfd >= 0:
                os.close(pidfd)


class Cleanup:
    """Ends what a kernel has started: `terminate` whenever its process has ended, `kill` when nothing may remain."""

    def __init__(self, context: KernelContext) -> None:
        self._loop = context.loop
        self._kernel_id, self._root = context.settings.now.id, str(context.root.path)
        self._ending: List[Descendant] = []

    @property
    def alive(self) -> bool:
        """Whether a terminated process still runs."""
        self._ending = [process for process in self._ending if process.alive]
        return bool(self._ending)

    def terminate(self, tag: str = TAG) -> List[Descendant]:
        """Send SIGTERM now and SIGKILL after GRACE. Processes that a restarted kernel starts meanwhile are not touched.

        `tag`: SETUP for what the set-up lines started.
        """
        found = find_descendants(self._kernel_id, tag, self._root)
        _send_all(self._loop.runtime, found, signal.SIGTERM)
        if found:
            self._ending += found
            self._loop.later(GRACE, lambda: _send_all(self._loop.runtime, found, signal.SIGKILL))
        return found

    def kill(self) -> None:
        """Send SIGKILL to every process."""
        for tag in (TAG, SETUP):
            _send_all(self._loop.runtime, find_descendants(self._kernel_id, tag, self._root), signal.SIGKILL)


def find_descendants(kernel_id: str = "", tag: str = TAG, root: str = "") -> List[Descendant]:
    """Return the user's processes, except this one, that belong to a kernel.

    kernel_id: The kernel; "" for any.
    tag: TAG or SETUP.
    root: The agent's folder; "" for any.
    """
    found = []
    for pid in procfs.pids():
        if pid == os.getpid() or not _is_own(pid):
            continue
        environment = procfs.environment(pid)
        kernel, folder = environment.get(tag, ""), environment.get(ROOT, "")
        start = procfs.start_ticks(pid) if is_kernel_id(kernel) else 0
        if start and kernel_id in ("", kernel) and root in ("", folder):
            found.append(Descendant(pid, start, _command(pid), kernel, folder))
    return found


def kernels_with_keeper() -> Set[str]:
    """Return the ids of the kernels for which a keeper of this user runs, whether or not their folders exist, and of
    the checks that run."""
    return {kernel_id for _, kernel_id in _keepers()}


def hidden_keeper(kernel_id: str) -> int:
    """Return the pid of a keeper of this kernel that sees other files than we do, as a session may have a /tmp of its
    own; 0 if there is none."""
    keepers = [pid for pid, served in _keepers() if served == kernel_id]
    return next(filter(procfs.sees_other_files, keepers), 0)


def _keepers() -> Iterator[Tuple[int, str]]:
    """The pid of each keeper of this user, and the id of its kernel."""
    for pid in filter(_is_own, procfs.pids()):
        words = procfs.arguments(pid)
        if words[-2:-1] in _WITH_ID:
            yield pid, words[-1]


def end_all(runtime: AgentRuntime, found: List[Descendant]) -> None:
    """Send SIGTERM, and SIGKILL after GRACE. Blocks until all have ended, for 2 · GRACE seconds at most."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _send_all(runtime, found, number)
        runtime.wait_until(lambda: not any(process.alive for process in found), GRACE, interval=0.02)


def open_gpus(pid: int, devices: str = "/dev/nvidia") -> Set[int]:
    """Return the numbers of the GPUs that this process of the user has open."""
    paths = [path for path in procfs.open_files(pid) if path.startswith(devices)]
    return {int(path[len(devices) :]) for path in paths if path[len(devices) :].isdigit()}


def _send_all(runtime: AgentRuntime, found: List[Descendant], number: int) -> None:
    for process in found:
        process.send(runtime, number)


def _is_own(pid: int) -> bool:
    return procfs.uid_of(pid) == os.geteuid()


def _command(pid: int) -> str:
    return one_line(" ".join(procfs.arguments(pid)), 200)
