"""What a SIGTERM means: who sent it, what follows from that, and the sentence a user reads about it.

Pure functions, no I/O: the table of senders can be read and tested here alone. This file must not know how a
signal is caught or what makes a kernel be in use; that is guard.py.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

SURVIVED = "survived"
ENDED = "ended"

# Command names as /proc/PID/comm shows them: at most 15 bytes.
SCHEDULERS = ("slurmstepd", "slurmd", "srun", "pbs_mom", "sge_shepherd", "sbatchd", "condor_starter")
MEMORY_DAEMONS = ("earlyoom", "nohang", "systemd-oomd", "oomd")
CONTAINER_RUNTIMES = ("containerd-shim", "containerd", "dockerd", "runc", "crun", "conmon", "kubelet")
KILL_FOLLOWS = " SIGKILL usually follows: save what you need."

# Seconds within which a second SIGTERM of the same kind ends a kernel that is in use. earlyoom repeats its
# SIGTERM about every 10 s as long as memory is short.
REPEAT_ENDS = {"owner": 5.0, "memory": 60.0}


class Sender(NamedTuple):
    """Who sent a signal. `pid` and `uid` are None and the texts "" where it cannot be known."""

    kind: str
    pid: Optional[int] = None
    uid: Optional[int] = None
    user: str = ""
    command: str = ""

    def __str__(self) -> str:
        if self.kind == "unknown":
            return "an unknown sender"
        if self.kind == "container" and not self.pid:
            return "outside of this container"
        process = f"pid {self.pid}, {self.command}" if self.command else f"pid {self.pid}"
        return f"{self.user or self.uid} ({process})"


def classify(pid: int, uid: int, command: str, own_uid: int) -> str:
    """The kind of a sender: scheduler, memory, container, system, owner, root or other.

    `pid` 0 is a sender outside of our pid namespace. `command` is what /proc/PID/comm said, "" if it could
    not be read. What a program is comes before who runs it: some schedulers signal as the user.
    """
    if pid == 0 or command in CONTAINER_RUNTIMES:
        return "container"
    if command in SCHEDULERS:
        return "scheduler"
    if command in MEMORY_DAEMONS:
        return "memory"
    if command.startswith("systemd"):
        return "system"
    if uid == 0:
        return "root"
    return "owner" if uid == own_uid else "other"


def decide(kind: str, in_use: bool, since_last: Optional[float]) -> str:
    """SURVIVED or ENDED. `since_last`: seconds since the last SIGTERM of this kind, None for the first."""
    if not in_use:
        return ENDED
    limit = REPEAT_ENDS.get(kind)
    return ENDED if limit is not None and since_last is not None and since_last <= limit else SURVIVED


def sentence(sender: Sender, clock: str, action: str) -> str:
    """One line for the running cell; `clock` is the local time as the user reads it."""
    start = f"SIGTERM from {sender} at {clock}: "
    if action == ENDED:
        return start + "the kernel ends."
    if sender.kind == "memory":
        return start + "memory is short. The cell is interrupted, the variables stay. A second one ends it."
    more = {
        "scheduler": KILL_FOLLOWS,
        "container": KILL_FOLLOWS,
        "system": KILL_FOLLOWS,
        "owner": f" A second one within {REPEAT_ENDS['owner']:.0f} s ends it.",
    }
    return start + "the kernel stays, the cell goes on." + more.get(sender.kind, "")
