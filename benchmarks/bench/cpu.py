"""How much processor time the processes of one way have used, by their part in it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

_PARTS = {
    "worker.py": "front_end",
    "jupyter_gpu_kernel.hub": "hub",
    " launch ": "launcher",
    " attach": "attach",
    " serve ": "keeper",
    "ipykernel": "kernel",
    "sshd": "sshd",
    "ssh": "ssh",
}


def used(folder: str) -> Counter[str]:
    """Seconds by part. `folder`: the way's home, which its processes, or their ancestors, have in what /proc shows."""
    commands: dict[int, str] = {}
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            pid, parent = int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            environment = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:  # another user's, or gone
            continue
        commands[pid], parents[pid] = command, parent
        if f"{folder}/" in command or f"{folder}/" in environment:
            found.add(pid)
    for _ in range(5):
        found |= {pid for pid, parent in parents.items() if parent in found}
    seconds: Counter[str] = Counter()
    for pid in found:
        part = next((part for text, part in _PARTS.items() if text in commands[pid]), "other")
        seconds[part] += _seconds(pid)
    return seconds


def _seconds(pid: int) -> float:
    """On the processor, of all threads that live."""
    total = 0.0
    for entry in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(entry.read_text().split()[0]) / 1e9
        except (OSError, IndexError):  # gone
            continue
    return total
