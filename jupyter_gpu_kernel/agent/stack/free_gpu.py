"""Chooses and leases a GPU for the computation of a check, as for a kernel: only one that nobody uses or waits for."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, NamedTuple, Tuple

from ...wire.runtime import Runtime
from ..gpus.allocation import Allocation
from ..gpus.claim import Claim, ClaimGranted
from ..gpus.devices.gpu import SmiError
from ..gpus.judge import DEFAULT_CRITERIA
from ..gpus.requirements import Requirements, wait_reason
from ..gpus.sampler import SampleReader
from ..gpus.sharing.lease import Lease, LeaseTaker, release_all
from ..gpus.sharing.wait_queue import QueueReader
from ..kernel_settings import KernelSettings
from ..process_control import ProcessControl


class FreeGpu(NamedTuple):
    """A GPU for a computation, or why there is none. `uuid`: several with commas, if they are those of a job."""

    uuid: str = ""
    name: str = ""
    why_not: str = ""
    leases: Tuple[Lease, ...] = ()


@contextlib.contextmanager
def leased_gpu(runtime: Runtime, processes: ProcessControl, settings: KernelSettings) -> Iterator[FreeGpu]:
    """Lease a free GPU for a kernel with these settings, if there is one. Blocks for some samples."""
    try:
        gpu = _choose(runtime, processes, settings)
    except SmiError as error:
        gpu = FreeGpu(why_not=error.cause.partition("\n")[0])
    try:
        yield gpu
    finally:
        release_all(gpu.leases)


def _choose(runtime: Runtime, processes: ProcessControl, settings: KernelSettings) -> FreeGpu:
    if not settings.gpus:
        return FreeGpu(why_not="the kernelspec asks for no GPU (--gpus 0)")
    allocation = Allocation.here()
    if allocation.uuids:
        uuids = ",".join(allocation.uuids)
        return FreeGpu(uuids, f"GPU {uuids} of the allocation")
    own = sum(owner.uid == os.getuid() for owner in QueueReader(runtime).lease_owners())
    if reason := wait_reason(settings.site, 1, own):
        return FreeGpu(why_not=reason.rstrip("."))
    taker = LeaseTaker(runtime, {"id": settings.id})
    needs = Requirements.of(settings)
    claim = Claim(runtime, 1, taker, allowed=allocation.allowed, needs=needs)
    try:
        return _claim(runtime, SampleReader(runtime, processes), claim)
    finally:
        claim.release()


def _claim(runtime: Runtime, reader: SampleReader, claim: Claim) -> FreeGpu:
    """Take as many samples as a verdict needs, and one more after the lease was taken."""
    for _ in range(DEFAULT_CRITERIA.samples + 1):
        claim.add(reader.read())
        delay = claim.delay()
        if claim.can_decide:
            outcome = claim.decide(QueueReader(runtime).read())
            if isinstance(outcome, ClaimGranted):
                (gpu,) = outcome.gpus
                return FreeGpu(gpu.uuid, str(gpu), "", tuple(outcome.leases))
            delay = outcome.delay
        runtime.sleep(min(delay, DEFAULT_CRITERIA.interval))
    return FreeGpu(why_not="no GPU is free")
