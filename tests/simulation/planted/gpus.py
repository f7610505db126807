"""Bugs in the agreement about GPUs: leases, the queue, and who waits."""

from __future__ import annotations

from ..mutants import Mutant

GPUS = [
    Mutant(
        "the leases of an ended kernel are not released",
        "agent.keeper.lifetime",
        "            self._gpus.release()\n",
        "            pass\n",
    ),
    Mutant(
        "GPUs are taken without a second measurement",
        "agent.gpus.claim",
        '        return ClaimPending(f"Checking once more that nobody else uses {names}.", ',
        "        self._leases = []\n        return ClaimGranted(list(chosen or ()), leases) or (",
    ),
    Mutant(
        "a kernel stays in the queue although no cell waits any more",
        "agent.gpus.manager",
        "        elif waited and not self.are_ready:\n",
        "        elif False:\n",
    ),
    Mutant(
        "a kernel that has its GPUs stays in the queue",
        "agent.gpus.acquisition",
        "        self._queue.leave()\n        self._stop_sampling()\n        self._callbacks.on_acquired()\n",
        "        self._stop_sampling()\n        self._callbacks.on_acquired()\n",
    ),
    Mutant(
        "a successor does not take over the kernel's leases",
        "agent.gpus.acquisition",
        "        passed = self._transfer.inherit()\n        leases = self._taker.take_over(passed.sockets)\n",
        "        passed = self._transfer.inherit()\n        leases = []\n",
    ),
    Mutant(
        "the leases of a killed keeper are released",
        "agent.gpus.acquisition",
        "        self._transfer.keep(leases)\n",
        "",
    ),
    Mutant(
        "released leases are still kept",
        "agent.gpus.acquisition",
        "        self._stop_sampling()\n        self._transfer.release()\n",
        "        self._stop_sampling()\n",
    ),
    Mutant(
        "a successor does not tell the kernel which GPUs it has",
        "agent.failover.successor",
        "        self.gpus.kernel_taken_over()\n",
        "",
    ),
    Mutant(
        "a cell does not wait for GPUs",
        "agent.core.waiting",
        "        passes = has_gpus or (",
        "        passes = True or (",
    ),
    Mutant(
        "cells go on to wait when the kernel has its GPUs",
        "agent.core.relay",
        "            self.resume(Reason.GPUS)\n",
        "            pass\n",
    ),
    Mutant(
        "a restart gives the GPUs away",
        "agent.keeper.keeper",
        '        if asked == "restart":\n',
        "        if False:\n",
    ),
    Mutant(
        "a lower priority comes first",
        "agent.gpus.sharing.turns",
        "    return -kernel.priority, kernel.since, kernel.kernel_id\n",
        "    return kernel.priority, kernel.since, kernel.kernel_id\n",
    ),
    Mutant(
        "nobody comes before a kernel that waits",
        "agent.gpus.sharing.turns",
        "    return [one for one in order[: order.index(mine)] if one.usable & mine.usable]\n",
        "    return []\n",
    ),
    Mutant(
        "a GPU with a process on it is free",
        "agent.gpus.judge",
        "    if gpu.processes:\n        return _processes_text(gpu)\n",
        "",
    ),
    Mutant(
        "a claim that is not confirmed keeps its leases",
        "agent.gpus.claim",
        "choose(verdicts, self._count, ahead) is None:\n            self.release()\n",
        "choose(verdicts, self._count, ahead) is None:\n",
    ),
    Mutant(
        "a cell does not show what it waits for",
        "agent.gpus.manager",
        "        self._handle(GpusChanged(self.are_ready, self.acquisition.names, text))\n",
        "        self._handle(GpusChanged(self.are_ready, self.acquisition.names))\n",
    ),
    Mutant(
        "the GPUs of a kernel are released instead of passed on to the kernel that replaces it",
        "agent.keeper.lifetime",
        "        if not is_kernel_id(by) or not self._gpus.hand_over(self._root.kernel(by)):\n",
        "        if True:\n",
    ),
    Mutant(
        "a kernel decides by samples from before others have asked that come first",
        "agent.gpus.acquisition",
        "            if ahead and not is_new:\n",
        "            if False:\n",
    ),
]
