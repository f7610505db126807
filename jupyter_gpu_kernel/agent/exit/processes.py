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
from typing import Any, Dict, List, NamedTuple, Optional, Set

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
        return start_of(self.pid) == self.start

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
    for name in filter(str.isdigit, os.listdir("/proc")):
        pid = int(name)
        tags = {} if pid == os.getpid() else _tags(pid)
        start = start_of(pid) if is_kernel_id(tags.get(tag, "")) else 0
        if start and kernel in ("", tags[tag]) and root in ("", tags.get(ROOT)):
            found.append(Process(pid, start, _command(pid), tags[tag], tags.get(ROOT, "")))
    return found


def serving() -> Set[str]:
    """The kernels for which a keeper of ours runs, whatever a cleaner of /tmp did to its folder."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    commands = [_words(pid) for pid in pids if _is_own(pid)]
    return {words[-1] for words in commands if words[-2:-1] in (["serve"], ["succeed"], ["setup"])}


def runs(kernel: str, word: str) -> bool:
    """Whether a process of this kernel has this word in its command line."""
    return any(word in _words(process.pid) for process in tagged(kernel))


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
    numbers = set()
    folder = f"/proc/{pid}/fd"
    try:
        links = [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]
    except OSError:  # it ended meanwhile
        return set()
    for link in links:
        if link.startswith(devices) and link[len(devices) :].isdigit():
            numbers.add(int(link[len(devices) :]))
    return numbers


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


def _tags(pid: int) -> Dict[str, str]:
    """Our names in its environment; {} if it is not ours, or gone."""
    if not _is_own(pid):
        return {}
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError:
        return {}
    names = tuple(name.encode() + b"=" for name in (TAG, ROOT, SETUP))
    said = [pair.decode("utf-8", "replace").partition("=") for pair in pairs if pair.startswith(names)]
    return {name: value for name, _, value in said}


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:  # gone
        return False


def start_of(pid: int) -> int:
    """When it began, in clock ticks since boot; 0 if it is gone, hidden from us, or a zombie."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def status_of_zombie(pid: int, start: int) -> Optional[int]:
    """How it ended (negative: a signal), as long as its parent has not asked; then None."""
    fields = _stat(pid)
    if not fields or fields[0] != "Z" or int(fields[19]) != start:
        return None
    status = int(fields[49])
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _stat(pid: int) -> List[str]:
    """The fields after its name; [] if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _words(pid: int) -> List[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []


def _command(pid: int) -> str:
    return "".join(one if one.isprintable() else "?" for one in " ".join(_words(pid)))[:200]
