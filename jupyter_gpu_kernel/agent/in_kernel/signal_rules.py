"""The rules for SIGTERM: which kinds of senders there are, what each means, and what the user reads.

Pure functions. This module does not know how a signal is caught (guard.py), or when a kernel is in use (usage.py).
"""

from __future__ import annotations

from typing import NamedTuple, Optional

SURVIVED = "survived"
ENDED = "ended"

# Names of programs as in /proc/PID/comm: at most 15 bytes.
SCHEDULERS = ("slurmstepd", "slurmd", "srun", "pbs_mom", "sge_shepherd", "sbatchd", "condor_starter")
MEMORY_DAEMONS = ("earlyoom", "nohang", "systemd-oomd", "oomd")
CONTAINER_RUNTIMES = ("containerd-shim", "containerd", "dockerd", "runc", "crun", "conmon", "kubelet")
KILL_FOLLOWS = ("scheduler", "container", "system")

REPEAT_ENDS = {"owner": 5.0, "memory": 60.0}
"""The seconds within which a second SIGTERM of the same kind ends a kernel that is in use. earlyoom repeats its SIGTERM
about every 10 s while memory is short."""


class Sender(NamedTuple):
    """The sender of a signal. What is unknown is None or ""."""

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
    """Return the kind of a sender: scheduler, memory, container, system, owner, root or other.

    The program decides before its user does, as some schedulers send signals as the job's user.

    pid: 0 for a sender outside of our pid namespace.
    command: The content of /proc/PID/comm; "" if unknown.
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


def decide(kind: str, in_use: bool, since_last: Optional[float], in_job: bool = False) -> str:
    """Return SURVIVED or ENDED.

    since_last: Seconds since the last SIGTERM of this kind; None for the first.
    in_job: Whether the kernel runs in a scheduler's job of its own, whose SIGKILL follows: until then functions of the
    user may save something, however idle the kernel is.
    """
    if not in_use:
        return SURVIVED if in_job and kind == "scheduler" else ENDED
    limit = REPEAT_ENDS.get(kind)
    return ENDED if limit is not None and since_last is not None and since_last <= limit else SURVIVED


def sentence(sender: Sender, clock: str, action: str) -> str:
    """Return the line for the running cells. `clock`: the local time as the user reads it."""
    start = f"SIGTERM from {sender} at {clock}: "
    if action == ENDED:
        return start + "the kernel ends."
    if sender.kind == "memory":
        return (
            start
            + "memory is short. The cell is interrupted, the variables are kept. A second SIGTERM ends the kernel."
        )
    if sender.kind in KILL_FOLLOWS:
        return start + "SIGKILL usually follows. The cell goes on until then: save what you need."
    repeated = f" A second SIGTERM within {REPEAT_ENDS['owner']:.0f} s ends the kernel."
    return start + "the kernel stays, the cell goes on." + (repeated if sender.kind == "owner" else "")
