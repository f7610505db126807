"""Twelve kernels want four GPUs at the same moment, while somebody without leases uses GPUs for short times.

Time is simulated, leases are real. A program such as nvidia-smi looks at the GPUs at some moment of its run, and the
GPU of a kernel that got it looks unused for a while.
"""

from __future__ import annotations

import heapq
import itertools
import random
import uuid
from functools import partial
from typing import Callable, Dict, List, Optional, Set, Tuple

import pytest
from runtimes import RUNTIME, Clock

from jupyter_gpu_kernel.agent.gpus.claim import Claim, ClaimGranted
from jupyter_gpu_kernel.agent.gpus.devices.gpu import Gpu, GpuProcess
from jupyter_gpu_kernel.agent.gpus.judge import Criteria
from jupyter_gpu_kernel.agent.gpus.sampler import Sample
from jupyter_gpu_kernel.agent.gpus.sharing.lease import Holder, LeaseTaker, lease_readers

pytestmark = pytest.mark.full

KERNELS, GPUS = 12, 4
ENOUGH = 30.0
"""Seconds of a round: every kernel that can get a GPU has it by then."""


class Node:
    """GPUs, and what happens to them. `strangers`: since when somebody without a lease uses a GPU, by its index."""

    def __init__(self, seed: int) -> None:
        self.clock = Clock()
        self.random = self.clock.random = random.Random(seed)
        self.uuids = [f"GPU-{uuid.UUID(int=self.random.getrandbits(128))}" for _ in range(GPUS)]
        self.strangers: Dict[int, float] = {}
        self.in_use: Set[int] = set()
        self._events: List[Tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.seconds + seconds, next(self._count), event))

    def run(self, seconds: float) -> None:
        end = self.clock.seconds + seconds
        while self._events and self._events[0][0] <= end:
            self.clock.seconds, _, event = heapq.heappop(self._events)
            event()
        self.clock.seconds = end

    def look(self) -> List[Gpu]:
        """What nvidia-smi sees at this moment."""
        return [self._gpu(index) for index in range(GPUS)]

    def _gpu(self, index: int) -> Gpu:
        used = index in self.in_use or index in self.strangers
        processes = (GpuProcess(7, "bob", 900, "python"),) if used else ()
        return Gpu(index, self.uuids[index], "A100", 81920, 901 if used else 1, 0, 0, processes=processes)

    def leases(self) -> Dict[str, Holder]:
        held = set(lease_readers(RUNTIME)[0].names())
        return {one: Holder("alice", 7, "k", None) for one in self.uuids if one in held}

    def stranger_comes(self, index: int) -> None:
        if index not in self.in_use:  # nobody begins to use a GPU that another process uses
            self.strangers.setdefault(index, self.clock.seconds)
            self.later(self.random.uniform(0.2, 3.0), lambda: self.strangers.pop(index, None))


class Kernel:
    """One that wants a GPU: it samples from its start on, and decides from its first cell on, as the keeper does."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.claim = Claim(node.clock, LeaseTaker(node.clock, {"id": name}))
        self.granted: Optional[ClaimGranted] = None
        self._cell_waits = self._sampling = False
        self._looked = 0.0  # when its newest sample looked at the GPUs
        self._leased = 0.0  # when it took the lease
        self._sample_in(node.random.uniform(0.0, 0.3))
        node.later(node.random.uniform(0.0, 1.5), self._cell)

    def close(self) -> None:
        self.claim.release()
        for lease in self.granted.leases if self.granted else ():
            lease.release()

    def _cell(self) -> None:
        """It may come while a sample is being taken, which cannot confirm a lease that is taken now."""
        self._cell_waits = True
        if self.claim.can_decide:
            self._decide()

    def _sample_in(self, seconds: float) -> None:
        self.node.later(seconds, self._sample)

    def _sample(self) -> None:
        if self._sampling or self.granted:
            return
        self._sampling = True
        random, begin = self.node.random, self.node.clock.seconds
        before, after = random.uniform(0.0, 0.1), random.uniform(0.0, 0.1)
        self.node.later(before, lambda: self._look(begin, after))

    def _look(self, begin: float, after: float) -> None:
        gpus, self._looked = self.node.look(), self.node.clock.seconds
        self.node.later(after, lambda: self._sampled(Sample(begin, gpus, self.node.leases())))

    def _sampled(self, sample: Sample) -> None:
        self._sampling = False
        self.claim.add(sample)
        if self._cell_waits:
            self._decide()
        elif not self.claim.has_all_samples:
            self._sample_in(self.claim.delay())

    def _decide(self) -> None:
        held = bool(self.claim._leases)
        outcome = self.claim.decide()
        if not held:
            self._leased = self.node.clock.seconds
        if not isinstance(outcome, ClaimGranted):
            return self._sample_in(outcome.delay)
        self.granted = outcome
        (uuid,) = [lease.uuid for lease in outcome.leases]
        index = self.node.uuids.index(uuid)
        assert self._looked >= self._leased, "the last sample was taken with the lease"
        assert index not in self.node.in_use, "another kernel has it"
        assert self.node.strangers.get(index, self._looked) >= self._looked, "somebody uses it"
        self.node.later(self.node.random.uniform(0.0, 5.0), partial(self.node.in_use.add, index))


@pytest.mark.parametrize("strangers", [0, 30], ids=["alone", "with strangers"])
def test_twelve_kernels_race_for_four_gpus(strangers: int) -> None:
    """A hundred rounds: a GPU never has two kernels, and nobody who uses one before the second measurement loses it."""
    for seed in range(100):
        node = Node(seed)
        kernels = [Kernel(node, f"k{number}") for number in range(KERNELS)]
        for _ in range(strangers):
            come = partial(node.stranger_comes, node.random.randrange(GPUS))
            node.later(node.random.uniform(0.0, ENOUGH / 3), come)
        try:
            node.run(ENOUGH)
            got = [kernel.granted.leases[0].uuid for kernel in kernels if kernel.granted]
            assert sorted(got) == sorted(node.uuids), f"round {seed}"
            assert sorted(node.leases()) == sorted(node.uuids)
        finally:
            for kernel in kernels:
                kernel.close()


def test_an_empty_gpu_is_measured_twice_and_no_more() -> None:
    """The second measurement begins a span after the first one, and the claim is granted as it ends."""
    for seed in range(20):
        node = Node(seed)
        kernel = Kernel(node, "k")
        try:
            kernel._cell()
            while not kernel.granted:
                node.run(0.01)
            assert len(kernel.claim._samples) == 2, f"round {seed}"
            assert kernel.claim._samples[1].time - kernel.claim._samples[0].time >= Criteria().span
        finally:
            kernel.close()
