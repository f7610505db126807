"""How much memory there is: of the node, and within the limit of a process's cgroup (v1 or v2); and how often
the system's OOM killer struck. Reads /proc and /sys; what cannot be read is None, never 0.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

MIB = 1024 * 1024
PROC = Path("/proc")
MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # v1 says "no limit" with a number near 2**63


def node_mib(meminfo: Path = PROC / "meminfo") -> Optional[Tuple[int, int]]:
    """(available, total) of this node in MiB."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB", _text(meminfo), re.MULTILINE))
    try:
        return int(found["MemAvailable"]) // 1024, int(found["MemTotal"]) // 1024
    except KeyError:  # no Linux, or a very old one
        return None


def node_oom_kills(vmstat: Path = PROC / "vmstat") -> Optional[int]:
    """How many processes the OOM killer has ended on this node, in whatever cgroup."""
    return _counter(_text(vmstat), "oom_kill")


class Cgroup:
    """The memory cgroup of a process. It keeps its folder: the counters outlive the process."""

    def __init__(self, pid: object = "self", proc: Path = PROC, mount: Path = MOUNT) -> None:
        self.name, self._top, self._v2 = _place(_text(proc / str(pid) / "cgroup"), mount)
        folder = self._top / self.name.lstrip("/")
        # In a container the name may be the host's, while the mount shows our own part of the tree.
        self._folder = folder if folder.is_dir() else self._top

    def oom_kills(self) -> Optional[int]:
        """How many processes of this cgroup the OOM killer has ended."""
        return _counter(
            _text(self._folder / ("memory.events" if self._v2 else "memory.oom_control")), "oom_kill"
        )

    def limit_mib(self) -> Optional[int]:
        """The least limit of it and of all above it; None: unlimited."""
        name = "memory.max" if self._v2 else "memory.limit_in_bytes"
        limits = [int(text) for text in (_text(folder / name) for folder in self._up()) if text.isdigit()]
        limit = min([value for value in limits if value < _UNLIMITED], default=None)
        return None if limit is None else limit // MIB

    def used_mib(self) -> Optional[int]:
        """What is used of it, caches included."""
        text = _text(self._folder / ("memory.current" if self._v2 else "memory.usage_in_bytes"))
        return int(text) // MIB if text.isdigit() else None

    def _up(self) -> List[Path]:
        above = [folder for folder in self._folder.parents if self._top in (folder, *folder.parents)]
        return [self._folder, *above]


def meter() -> Dict[str, Any]:
    """{node_available_mib, node_total_mib, cgroup_used_mib, cgroup_limit_mib}; None: unknown or unlimited."""
    available, total = node_mib() or (None, None)
    cgroup = Cgroup()
    limit = cgroup.limit_mib()
    if limit is not None and total is not None and limit >= total:
        limit = None  # a limit that the node reaches before
    return {
        "node_available_mib": available,
        "node_total_mib": total,
        "cgroup_used_mib": None if limit is None else cgroup.used_mib(),
        "cgroup_limit_mib": limit,
    }


def _place(listed: str, mount: Path) -> Tuple[str, Path, bool]:
    """(name, top folder, whether it is version 2) of the memory cgroup that /proc/PID/cgroup lists."""
    names: Dict[str, str] = {}
    for line in listed.splitlines():
        _, controllers, name = line.split(":", 2)
        names.update((controller, name) for controller in controllers.split(","))
    if "memory" in names:
        return names["memory"], mount / "memory", False
    return names.get("", "/"), mount, True


def _counter(text: str, name: str) -> Optional[int]:
    found = re.search(r"^%s (\d+)$" % name, text, re.MULTILINE)
    return int(found[1]) if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
