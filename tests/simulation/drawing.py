"""The plan of a seed: what `plan.draw` returns, and in a part of the seeds what only these have."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from . import gpu_plan
from . import plan as common
from .plan import Decision, Plan

_HOSTS = 0.17
"""The part of the seeds in which the kernel may start on several hosts."""
_SLURM = 0.17
"""The part of the seeds in which the kernel runs in a job of Slurm."""
_SLURM_FAULTS = (("job ends", 0.4), ("controller away", 0.3), ("answers lost", 0.2), ("login away", 0.2))
_GPUS_IN_JOBS = 0.4
"""The part of these in which jobs have GPUs."""
_NOT_WITH_JOBS = ("node rebooted",)
"""What does not happen while kernels run in jobs, which end instead."""
_OTHER_COMPUTER = 0.2
"""The part of the seeds in which the user goes on at another computer."""


def draw(seed: int) -> Plan:
    """Return the plan of this seed."""
    return _with_slurm(_with_hosts(_with_other_computer(common.draw(seed))))


def _with_slurm(plan: Plan) -> Plan:
    """Let the kernel run in a job, which ends early; or Slurm, or the login node, does not answer for a while."""
    random = Random(f"slurm {plan.seed}")
    has_other = any(one.kind == "other computer" for one in plan.decisions)
    if plan.node_gpus or plan.hosts or has_other or random.random() > _SLURM:
        return plan
    length = max((one.at for one in plan.decisions), default=5.0)
    decisions = [one for one in plan.decisions if one.kind not in _NOT_WITH_JOBS]
    for kind, share in _SLURM_FAULTS:
        if random.random() < share:
            at = random.choice((0.0, random.uniform(0.0, length)))
            seconds = random.choice((2.0, 6.0, 15.0))
            state = random.choice(("TIMEOUT", "CANCELLED", "NODE_FAIL"))
            decisions.append(Decision(at, kind, {"seconds": seconds, "state": state}))
    circumstances: dict[str, Any] = {}
    if random.random() < _GPUS_IN_JOBS:
        fields = [(one.at, one.kind, one.arguments) for one in decisions]
        fields, circumstances = gpu_plan.draw_in_jobs(plan.seed, fields, length)
        decisions = [Decision(*one) for one in fields]
    decisions.sort(key=lambda one: one.at)
    return replace(plan, slurm=True, **circumstances).with_decisions(*decisions)


def _with_hosts(plan: Plan) -> Plan:
    """Let the kernel start on the first of several hosts that has a GPU; others use the GPUs, or hosts are out of
    reach."""
    random = Random(f"hosts {plan.seed}")
    has_other = any(one.kind == "other computer" for one in plan.decisions)
    if plan.node_gpus or has_other or random.random() > _HOSTS:
        return plan
    hosts, length = random.choice((2, 2, 3)), max((one.at for one in plan.decisions), default=5.0)
    decisions = [one for one in plan.decisions if one.kind not in ("node rebooted",)]
    for host in range(hosts):
        seconds = random.choice((2.0, 6.0, 15.0))
        if random.random() < 0.6:
            at = random.choice((0.0, random.uniform(0.0, length)))
            decisions.append(Decision(at, "foreign on host", {"host": host, "seconds": seconds}))
        if random.random() < 0.3:
            at = random.choice((0.0, random.uniform(0.0, length)))
            decisions.append(Decision(at, "host away", {"host": host, "seconds": seconds}))
    return replace(plan, hosts=hosts).with_decisions(*sorted(decisions, key=lambda one: one.at))


def _with_other_computer(plan: Plan) -> Plan:
    """Let the user attach to the kernel from another computer; cells on each computer take the kernel over."""
    random = Random(f"computers {plan.seed}")
    if plan.node_gpus or random.random() > _OTHER_COMPUTER:
        return plan
    length = max((one.at for one in plan.decisions), default=0.0)
    kept = [one for one in plan.decisions if one.kind not in ("second front end", "return")]
    decisions = [
        replace(one, arguments={**one.arguments, "computer": random.choice((0, 0, 1))}) for one in kept
    ]
    at = random.uniform(0.5, max(1.0, length / 2))
    decisions.append(Decision(at, "other computer"))
    for _ in range(random.randint(1, 5)):
        actions = [["prints", random.randint(1, 3), 20], ["sleep", random.choice((0.05, 0.5, 4.0))]]
        cells = [[*actions[: random.randint(1, 2)]] for _ in range(random.randint(1, 3))]
        arguments = {"front": random.choice((0, 1, 1)), "cells": cells, "stop": True, "gap": 0.0}
        decisions.append(Decision(at + random.uniform(0.0, 8.0), "cells", arguments))
    if random.random() < 0.3:
        decisions.append(Decision(at + random.uniform(1.0, 8.0), "second leaves"))
    return plan.with_decisions(*sorted(decisions, key=lambda one: one.at))
