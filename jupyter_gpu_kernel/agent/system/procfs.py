"""Reads /proc: the processes of this node, their users, and its boot.

Nothing here raises an error for a process that has ended, or that another user hides from us.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pwd
import re
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_USER_NAMES: Dict[int, str] = {}


class Stat(NamedTuple):
    """The part of /proc/PID/stat that we use. Times are in clock ticks."""

    state: str
    group: int
    session: int
    cpu: int
    """The CPU time of this process alone."""
    cpu_of_children: int
    """The CPU time of the children that it has waited for."""
    start: int
    """When the process started, counted from the boot."""
    wait_status: int
    """The exit status as waitpid() returns it, if we may see it."""


def pids() -> Iterator[int]:
    """The ids of all processes."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def pids_of_session(session: int) -> Iterator[int]:
    """The ids of the processes in this session. Only its id is asked of every process, with one system call: reading
    /proc/PID/stat of each costs five times as much CPU."""
    return (pid for pid in pids() if _session_of(pid) == session)


def read_stat(pid: int) -> Optional[Stat]:
    """/proc/PID/stat; None if there is no such process."""
    _, name_end, rest = _read(pid, "stat").rpartition(b")")  # the name may hold spaces and parentheses
    fields = rest.split()
    if not name_end or len(fields) < 20:
        return None
    user, system, children_user, children_system = map(int, fields[11:15])
    wait_status = int(fields[49]) if len(fields) > 49 else 0
    return Stat(
        fields[0].decode(), int(fields[2]), int(fields[3]), user + system, children_user + children_system,
        int(fields[19]), wait_status,
    )  # fmt: skip


def start_ticks(pid: int) -> int:
    """When the process started, in clock ticks since the boot; 0 if it has ended, is a zombie, or is hidden."""
    stat = read_stat(pid)
    return stat.start if stat is not None and stat.state not in "ZX" else 0


def is_running(pid: int) -> bool:
    """Whether the process may run: it is not stopped (SIGSTOP), as far as we may see it."""
    stat = read_stat(pid)
    return stat is None or stat.state not in "Tt"


def has_ended(pid: int) -> bool:
    """Whether there is no such process, also where /proc hides those of other users."""
    return _session_of(pid) is None


def start_time(pid: int) -> Optional[float]:
    """When the process started, in seconds since the epoch; None if that is unknown."""
    stat = read_stat(pid)
    return None if stat is None else round(boot_time() + seconds(stat.start), 1)


def cpu_seconds(pid: int) -> Optional[float]:
    """The CPU time of the process and the children that it has waited for; None if that is unknown."""
    stat = read_stat(pid)
    return None if stat is None else seconds(stat.cpu + stat.cpu_of_children)


def tree_cpu(session: int) -> float:
    """Seconds of CPU time of all processes in this session, and of their reaped children."""
    return sum(cpu_seconds(pid) or 0.0 for pid in pids_of_session(session))


def zombie_status(pid: int, start: int) -> Optional[int]:
    """The return code (negative: a signal) of a zombie that started at `start`; None if the process is no zombie."""
    stat = read_stat(pid)
    if stat is None or stat.state != "Z" or stat.start != start:
        return None
    status = stat.wait_status
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def seconds(ticks: int) -> float:
    """Clock ticks in seconds."""
    return ticks / _TICKS_PER_SECOND


def uid_of(pid: int) -> Optional[int]:
    """The id of the user who owns the process; None if it has ended or is hidden."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def user_name(uid: int) -> str:
    """The name of the user `uid`, or "uid N". May wait for the site's directory service."""
    if uid not in _USER_NAMES:
        try:
            _USER_NAMES[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            _USER_NAMES[uid] = f"uid {uid}"
    return _USER_NAMES[uid]


def known_user_name(uid: int) -> str:
    """The name, if `user_name` has looked it up before; otherwise "uid N". Never waits."""
    return _USER_NAMES.get(uid, f"uid {uid}")


def knows_user(uid: int) -> bool:
    """Return whether `user_name` has looked this user up before, and so returns the name at once."""
    return uid in _USER_NAMES


def command_name(pid: int) -> str:
    """Return the name of the process's program, at most 15 bytes of it."""
    return _read(pid, "comm").decode("utf-8", "replace").strip()


def arguments(pid: int) -> List[str]:
    """Return the process's command line."""
    return _read(pid, "cmdline").decode("utf-8", "replace").split("\0")[:-1]


def environment(pid: int) -> Dict[str, str]:
    """Return the environment that the process was started with."""
    entries = _read(pid, "environ").decode("utf-8", "replace").split("\0")
    return {name: value for name, equals, value in (entry.partition("=") for entry in entries) if equals}


def open_files(pid: int) -> List[str]:
    """Return the paths to which the process's file descriptors refer."""
    folder, paths = f"/proc/{pid}/fd", []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as the folder itself
                paths.append(os.readlink(f"{folder}/{name}"))
    return paths


def maps_file(pid: Any, name: str) -> Optional[bool]:
    """Whether the process (an id, or "self") has mapped a file whose path contains `name`; None if unknown."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return any(name.encode() in line for line in file)
    except OSError:
        return None


def sees_other_files(pid: int) -> bool:
    """Whether the process has another mount namespace than we have, as in a session with a /tmp of its own. A
    process that has ended meanwhile has no namespace."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino != os.stat("/proc/self/ns/mnt").st_ino
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ESRCH)


def has_opened_gpus(pid: int) -> Optional[bool]:
    """Whether the process has loaded NVIDIA's driver, or opened AMD's; None if unknown."""
    return True if "/dev/kfd" in open_files(pid) else maps_file(pid, "/libcuda.so")


def boot_time() -> float:
    """When the node booted, in seconds since the epoch."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.lru_cache(maxsize=None)
def boot_id() -> str:
    """An id that changes at every boot, also of a container; "" if the system has none."""
    machine = _read("sys", "kernel/random/boot_id").decode().strip()
    return f"{machine}/{start_ticks(1)}" if machine else ""


def booted_at() -> str:
    """When the node, or the container, started: "at 12:00 on 2030-01-31"; "" if that is unknown."""
    found = re.search(rb"^btime (\d+)$", _read("stat"), re.MULTILINE)
    if not found:
        return ""
    first = seconds(start_ticks(1))  # later than the machine's boot in a container
    return time.strftime("at %H:%M on %Y-%m-%d", time.localtime(int(found[1]) + first))


def _session_of(pid: int) -> Optional[int]:
    """The id of the process's session; None if the process has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def read_text(path: Path) -> str:
    """Return the content of a text file of the system, stripped; "" if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _read(*path: Any) -> bytes:
    """The content of a file below /proc; b"" if it cannot be read."""
    try:
        with open("/".join(map(str, ("/proc", *path))), "rb") as file:
            return file.read()
    except OSError:
        return b""
