"""Why a job waits, in words; and what to change where waiting does not help. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple


class PendingReason(NamedTuple):
    """Why a job is pending. `remedy`: what to change, if it would wait for ever; else ""."""

    text: str
    remedy: str = ""


_ADD = "jupyter gpu-kernel add … --slurm --replace"
_WAITS = {
    "": "Slurm has not looked at it yet",
    "None": "Slurm has not looked at it yet",
    "Resources": "it is next, as soon as enough is free",
    "Priority": "other jobs have a higher priority",
    "Dependency": "it depends on another job",
    "BeginTime": "its begin time has not come",
    "Reservation": "it waits for its reservation",
    "Licenses": "it waits for a licence",
    "Prolog": "the node is being prepared",
    "Cleaning": "an earlier attempt is being cleaned up",
    "ReqNodeNotAvail": "a node that it needs is not available, perhaps because of maintenance",
}
_FOREVER = {
    "PartitionTimeLimit": ("its time limit is above that of the partition", "--time, or --partition"),
    "PartitionNodeLimit": (
        "it asks for more nodes than the partition has or allows",
        "--nodes, or --partition",
    ),
    "PartitionConfig": (
        "no node of the partition has so many CPUs, GPUs or so much memory",
        "--cpus, --mem, --gpus, or --partition",
    ),
    "PartitionInactive": ("the partition is not in use", "--partition"),
    "BadConstraints": ("no node can give what it asks for", "--gpus, --gpu-type, --mem, or --partition"),
    "AccountNotAllowed": ("the account may not use the partition", "--account, or --partition"),
    "QOSNotAllowed": ("the QOS may not be used in the partition", "--qos, or --partition"),
    "InvalidAccount": ("the account is not valid", "--account"),
    "InvalidQOS": ("the QOS is not valid", "--qos"),
}
_HELD = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "launch_failed_requeued_held", "held")


def why_pending(reason: str) -> PendingReason:
    """Return the words for Slurm's reason, which stay next to it."""
    if reason in _FOREVER:
        text, options = _FOREVER[reason]
        return PendingReason(text, f"It would wait for ever: interrupt it, and change {options}: {_ADD}")
    if any(one in reason for one in _HELD):
        who = "by an administrator" if "Admin" in reason else "(scontrol hold)"
        return PendingReason(
            f"it is held {who}", "Release it with scontrol release, or ask the cluster's administrators."
        )
    if reason.startswith("ReqNodeNotAvail"):
        return PendingReason(_WAITS["ReqNodeNotAvail"])
    if "DOWN" in reason or "DRAINED" in reason:
        return PendingReason("the nodes that it could use are down, drained or reserved")
    if match := re.match(r"(QOS|Assoc|Max\w*Per)\w*", reason):
        whose = "of the QOS" if match[1] == "QOS" else "of the account"
        if re.search(r"Max\w*(Time|Wall|PerJob|PerNode)", reason):
            return PendingReason(
                f"it asks for more than a limit {whose} allows one job",
                f"Change --time, --gpus or --qos: {_ADD}",
            )
        return PendingReason(f"a limit {whose} is reached: it starts when other jobs have ended")
    return PendingReason(_WAITS.get(reason, "Slurm gives this reason"))
