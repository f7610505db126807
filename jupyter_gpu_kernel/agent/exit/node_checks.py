"""Reads from the node what may be the reason of a kernel's end: memory, disks, GPUs, daemons, the login manager, jobs.

Memory is that of the node and of a process's cgroup (v1 or v2), from /proc and /sys; what cannot be read is None, never
0. Whatever could hang with the node (a dead file server, a driver) runs in a process that is left behind after a
timeout.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..gpus.devices.gpu import SmiError
from ..gpus.devices.gpu_reader import GpuReader
from ..in_kernel.signal_rules import MEMORY_DAEMONS
from ..system.agent_runtime import AgentRuntime, Limit, run_programs
from ..system.procfs import command_name, pids, read_text, user_name

MIB = 1024 * 1024
PROC = Path("/proc")
MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # in v1 "no limit" is a number near 2**63
TIMEOUT = 3.0
"""Seconds that the check of the disks, or of the GPUs, may take."""
_LOGIND = ("/usr/lib/systemd", "/run/systemd", "/etc/systemd")
_JOBS = {
    "SLURM_JOB_ID": "Slurm job",
    "PBS_JOBID": "PBS job",
    "LSB_JOBID": "LSF job",
    "JOB_ID": "Grid Engine job",
}
_WRITE_PROBE = """
import errno, os, sys, tempfile
bad = (errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO)
for folder in sys.argv[1:]:
    print(folder, end="", flush=True)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        print("\\0", flush=True)
    except OSError as error:
        print("\\0" + (os.strerror(error.errno) if error.errno in bad else ""), flush=True)
"""


# -------------------------------------------------------------------------------------- memory


def node_mib(meminfo: Path = PROC / "meminfo") -> Optional[Tuple[int, int]]:
    """Return (available, total) of this node, in MiB."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB", read_text(meminfo), re.MULTILINE))
    try:
        return int(found["MemAvailable"]) // 1024, int(found["MemTotal"]) // 1024
    except KeyError:  # not Linux, or a very old one
        return None


def node_oom_kills(vmstat: Path = PROC / "vmstat") -> Optional[int]:
    """Return how many processes the OOM killer has killed on this node, in all cgroups."""
    return _read_counter(read_text(vmstat), "oom_kill")


class Cgroup:
    """The memory cgroup of a process. Its counters can be read also when the process has ended."""

    def __init__(self, pid: object = "self", proc: Path = PROC, mount: Path = MOUNT) -> None:
        self.name, self._top, self._v2 = _locate(read_text(proc / str(pid) / "cgroup"), mount)
        folder = self._top / self.name.lstrip("/")
        # In a container the name may be the host's, while only our own part of the tree is mounted.
        self._folder = folder if folder.is_dir() else self._top

    def oom_kills(self) -> Optional[int]:
        """Return how many processes of this cgroup the OOM killer has killed."""
        return _read_counter(
            read_text(self._folder / ("memory.events" if self._v2 else "memory.oom_control")), "oom_kill"
        )

    def limit_mib(self) -> Optional[int]:
        """Return the smallest limit of this cgroup and its parents; None if there is none."""
        name = "memory.max" if self._v2 else "memory.limit_in_bytes"
        limits = [int(text) for text in (read_text(folder / name) for folder in self._up()) if text.isdigit()]
        limit = min([value for value in limits if value < _UNLIMITED], default=None)
        return None if limit is None else limit // MIB

    def used_mib(self) -> Optional[int]:
        """Return the memory in use, including caches."""
        text = read_text(self._folder / ("memory.current" if self._v2 else "memory.usage_in_bytes"))
        return int(text) // MIB if text.isdigit() else None

    def _up(self) -> List[Path]:
        above = [folder for folder in self._folder.parents if self._top in (folder, *folder.parents)]
        return [self._folder, *above]


def read_memory() -> Dict[str, Any]:
    """Return {node_available_mib, node_total_mib, cgroup_used_mib, cgroup_limit_mib}; None: unknown or unlimited."""
    available, total = node_mib() or (None, None)
    cgroup = Cgroup()
    limit = cgroup.limit_mib()
    if limit is not None and total is not None and limit >= total:
        limit = None  # the node's memory is used up before
    return {
        "node_available_mib": available,
        "node_total_mib": total,
        "cgroup_used_mib": None if limit is None else cgroup.used_mib(),
        "cgroup_limit_mib": limit,
    }


def _locate(listed: str, mount: Path) -> Tuple[str, Path, bool]:
    """(name, top folder, whether it is version 2) of the memory cgroup, from the content of /proc/PID/cgroup."""
    names: Dict[str, str] = {}
    for line in listed.splitlines():
        _, controllers, name = line.split(":", 2)
        names.update((controller, name) for controller in controllers.split(","))
    if "memory" in names:
        return names["memory"], mount / "memory", False
    return names.get("", "/"), mount, True


def _read_counter(text: str, name: str) -> Optional[int]:
    found = re.search(r"^%s (\d+)$" % name, text, re.MULTILINE)
    return int(found[1]) if found else None


# -------------------------------------------------------------------------------------- checks


def unwritable_folders(runtime: AgentRuntime, folders: List[str]) -> List[str]:
    """Return those folders that cannot be written to, each with the reason. Blocks for TIMEOUT seconds at most."""
    command = [sys.executable, "-I", "-S", "-c", _WRITE_PROBE, *folders]
    (ended,) = run_programs(runtime, [command], Limit(runtime.monotonic() + TIMEOUT))
    found = []
    for line in ended.text.splitlines():
        folder, finished, problem = line.partition("\0")
        if problem or not finished:
            found.append(f"{folder}: {problem or 'its file system does not answer'}")
    return found


def gpu_problem(smi: GpuReader, uuids: List[str]) -> str:
    """Return what is wrong with one of these GPUs (UUIDs, or what a scheduler has allocated); "" if nothing is."""
    if not uuids:
        return ""
    try:
        gpus = smi.read(TIMEOUT)
    except SmiError as error:
        return error.cause if error.code in ("driver", "hang", "none") else ""
    for uuid in uuids:
        gpu = next((one for one in gpus if one.is_named(uuid)), None)
        if gpu is None:
            return f"{uuid} has fallen off the bus: the driver does not list it any more"
        if gpu.problem:
            return f"GPU {gpu.index}: {gpu.problem}"
    return ""


def memory_daemon() -> str:
    """Return the name of a daemon that kills processes when memory is short; "" if none runs here."""
    return next((name for name in map(command_name, pids()) if name in MEMORY_DAEMONS), "")


def own_cgroup() -> str:
    """Return this process's cgroup, which names its login session or job."""
    return read_text(PROC / "self" / "cgroup").rpartition(":")[2]


def scheduler_job(environ: Mapping[str, str]) -> str:
    """Return the scheduler's job that this environment belongs to, "Slurm job 17"; "" if none."""
    return next((f"{name} {environ[key]}" for key, name in _JOBS.items() if environ.get(key)), "")


def kills_sessions(folders: Sequence[object] = _LOGIND) -> Optional[bool]:
    """Return KillUserProcesses of logind's configuration; None if it is not set there."""
    value = None
    for folder in map(str, folders):
        for file in [Path(folder, "logind.conf"), *sorted(Path(folder, "logind.conf.d").glob("*.conf"))]:
            found = re.findall(r"^\s*KillUserProcesses\s*=\s*(\w+)", read_text(file), re.MULTILINE)
            value = found[-1].lower() in ("yes", "true", "1", "on") if found else value
    return value


def user_lingers() -> bool:
    """Return whether logind keeps the user's processes after logout (`loginctl enable-linger`)."""
    return Path("/var/lib/systemd/linger", user_name(os.getuid())).exists()
