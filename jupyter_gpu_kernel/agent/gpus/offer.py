"""What this node offers to a kernel that has several hosts to choose from. Nothing is taken or announced."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from ..kernel_settings import KernelSettings
from ..system.agent_runtime import AgentRuntime
from .devices.gpu import SmiError
from .judge import Verdict, choose, require_usable
from .requirements import Allocation, Requirements, free_memory, wait_reason
from .sampler import judge_now
from .sharing.turns import PassedPlaces, WaitingKernel, gpu_bits, in_turn
from .sharing.wait_queue import QueueReader

_NO_SEARCH = {"enough": True, "idle": True, "memory": 0, "waiting": 0, "problem": "", "never": False}
"""The offer to a kernel without GPUs, or with those that a scheduler has allocated."""


def read_offer(runtime: AgentRuntime, settings: KernelSettings) -> Dict[str, Any]:
    """Return {enough, idle, memory, waiting, usable, problem} for a kernel with these settings; blocks for a while.

    `enough`: whether enough GPUs are free now; `idle`: whether nobody uses any GPU that the kernel could use; `memory`:
    the free MiB of the best one; `waiting`: how many kernels wait here; `usable`: the UUIDs that the kernel could use,
    free or not; `problem`: why it can never get enough, "" if it can; `never`: whether that lies in the settings and
    the GPUs, not in a driver that fails.
    """
    count = settings.gpus
    answer = dict(_NO_SEARCH, usable=[])
    allocation = Allocation.current(runtime)
    if not count or allocation.uuids:
        return answer
    try:
        verdicts = judge_now(runtime, Requirements.of(settings, allocation.allowed))
        require_usable(verdicts, count)
    except SmiError as error:
        return dict(answer, enough=False, idle=False, problem=error.cause, never=error.code == "few")
    usable = [verdict.gpu.uuid for verdict in verdicts if not verdict.unusable]
    reader = QueueReader(runtime)
    queue = [one for one in reader.read() if one.usable & gpu_bits(usable)]
    chosen = choose(verdicts, count, _in_front(runtime, settings, queue, verdicts))
    own = sum(owner.uid == os.getuid() for owner in reader.lease_owners())
    return dict(
        answer,
        enough=chosen is not None and not wait_reason(settings.gpus_per_user, count, own),
        idle=all(verdict.free for verdict in verdicts if not verdict.unusable),
        memory=max((free_memory(gpu) or 0 for gpu in chosen or ()), default=0),
        waiting=len(queue),
        usable=usable,
    )


def _in_front(
    runtime: AgentRuntime, settings: KernelSettings, queue: List[WaitingKernel], verdicts: List[Verdict]
) -> List[WaitingKernel]:
    """Return the kernels that would get GPUs before this one. Places of users whom the setting `ignore_place` names do
    not count: whether they leave GPUs untaken, only a kernel can find out that waits here."""
    passed = PassedPlaces(settings.ignore_place)
    passed.add(runtime.monotonic(), [], [verdict.gpu.uuid for verdict in verdicts], [])
    now = runtime.time()
    return passed.mark(in_turn((one for one in queue if one.keeps(now) and not passed.names(one)), {}))
