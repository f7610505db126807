"""The user's own processes on this node, by the kernel they belong to; and how to end them without ever hitting
another one.

A kernel's descendants inherit JUPYTER_GPU_KERNEL_ID, however far they move away (setsid, nohup, double forks).
Only own ones are looked at, and a process is known by pid and start time together. This file must not know
keepers and kernels; it reads /proc.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, List, NamedTuple, Set

from .. import procfs
from ..paths import is_kernel_id

TAG = "JUPYTER_GPU_KERNEL_ID"
ROOT = "JUPYTER_GPU_KERNEL_ROOT"
SETUP = "JUPYTER_GPU_KERNEL_SETUP"
"""Instead of TAG: of what a kernel's set-up lines started, which outlives restarts of the kernel."""
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""


class Process(NamedTuple):
    """`start`: in clock ticks since boot; `kernel`, `root`: what its environment says it belongs to."""

    pid: int
    start: int
    command: str
    kernel: str
    root: str

    @property
    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return procfs.start_ticks(self.pid) == self.start

    def send(self, number: int) -> None:
        """Signals exactly this process; nothing, if it is gone."""
        try:
            handle = handle_of(self.pid)
            try:
                if not self.alive:
                    return
                if handle >= 0:
                    signal.pidfd_send_signal(handle, number)  # type: ignore[attr-defined,unused-ignore]
                else:
                    os.kill(self.pid, number)
            finally:
                if handle >= 0:
                    os.close(handle)
        except (ProcessLookupError, PermissionError):  # just gone; or it has become somebody else
            return


def tagged(kernel: str = "", tag: str = TAG, root: str = "") -> List[Process]:
    """Our own processes, but this one, that belong to this kernel (without a name: to any) of the agent in the folder
    `root` (without: of any). `tag`: or SETUP."""
    found = []
    for pid in procfs.pids():
        if pid == os.getpid() or not _is_own(pid):
            continue
        environment = procfs.environment(pid)
        owner, place = environment.get(tag, ""), environment.get(ROOT, "")
        start = procfs.start_ticks(pid) if is_kernel_id(owner) else 0
        if start and kernel in ("", owner) and root in ("", place):
            found.append(Process(pid, start, _command(pid), owner, place))
    return found


def serving() -> Set[str]:
    """The kernels for which a keeper of ours runs, whatever a cleaner of /tmp did to its folder."""
    commands = [procfs.arguments(pid) for pid in procfs.pids() if _is_own(pid)]
    return {words[-1] for words in commands if words[-2:-1] in (["serve"], ["succeed"], ["setup"])}


def runs(kernel: str, word: str) -> bool:
    """Whether a process of this kernel has this word in its command line."""
    return any(word in procfs.arguments(process.pid) for process in tagged(kernel))


def end_all(processes: List[Process]) -> None:
    """SIGTERM, a moment, SIGKILL. Blocks until they are gone, at most a little more than 2 · GRACE seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            process.send(number)
        deadline = time.monotonic() + GRACE
        while any(process.alive for process in processes) and time.monotonic() < deadline:
            time.sleep(0.02)


def open_gpus(pid: int, devices: str = "/dev/nvidia") -> Set[int]:
    """The numbers of the GPUs that this own process has open."""
    paths = [path for path in procfs.open_files(pid) if path.startswith(devices)]
    return {int(path[len(devices) :]) for path in paths if path[len(devices) :].isdigit()}


def handle_of(pid: int) -> int:
    """A descriptor that is this process and no later one of its number; -1 where there is no such thing.

    ProcessLookupError: it is gone.
    """
    opener: Any = getattr(os, "pidfd_open", None)
    if opener is None or not hasattr(signal, "pidfd_send_signal"):
        return -1
    try:
        return int(opener(pid))
    except ProcessLookupError:
        raise
    except OSError:  # an old Linux under a new Python
        return -1


def _is_own(pid: int) -> bool:
    return procfs.uid_of(pid) == os.geteuid()


def _command(pid: int) -> str:
    line = " ".join(procfs.arguments(pid))
    return "".join(char if char.isprintable() else "?" for char in line)[:200]
