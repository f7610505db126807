"""Reads the memory of the node and of a process's cgroup (v1 or v2), and counts the OOM killer's kills.

The sources are /proc and /sys; what cannot be read is None, never 0.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

MIB = 1024 * 1024
PROC = Path("/proc")
MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # in v1 "no limit" is a number near 2**63


def node_mib(meminfo: Path = PROC / "meminfo") -> Optional[Tuple[int, int]]:
    """Return (available, total) of this node, in MiB."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB", _text(meminfo), re.MULTILINE))
    try:
        return int(found["MemAvailable"]) // 1024, int(found["MemTotal"]) // 1024
    except KeyError:  # not Linux, or a very old one
        return None


def node_oom_kills(vmstat: Path = PROC / "vmstat") -> Optional[int]:
    """Return how many processes the OOM killer has killed on this node, in all cgroups."""
    return _read_counter(_text(vmstat), "oom_kill")


class Cgroup:
    """The memory cgroup of a process. Its counters can be read also when the process has ended."""

    def __init__(self, pid: object = "self", proc: Path = PROC, mount: Path = MOUNT) -> None:
        self.name, self._top, self._v2 = _locate(_text(proc / str(pid) / "cgroup"), mount)
        folder = self._top / self.name.lstrip("/")
        # In a container the name may be the host's, while only our own part of the tree is mounted.
        self._folder = folder if folder.is_dir() else self._top

    def oom_kills(self) -> Optional[int]:
        """Return how many processes of this cgroup the OOM killer has killed."""
        return _read_counter(
            _text(self._folder / ("memory.events" if self._v2 else "memory.oom_control")), "oom_kill"
        )

    def limit_mib(self) -> Optional[int]:
        """Return the smallest limit of this cgroup and its parents; None if there is none."""
        name = "memory.max" if self._v2 else "memory.limit_in_bytes"
        limits = [int(text) for text in (_text(folder / name) for folder in self._up()) if text.isdigit()]
        limit = min([value for value in limits if value < _UNLIMITED], default=None)
        return None if limit is None else limit // MIB

    def used_mib(self) -> Optional[int]:
        """Return the memory in use, including caches."""
        text = _text(self._folder / ("memory.current" if self._v2 else "memory.usage_in_bytes"))
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


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
