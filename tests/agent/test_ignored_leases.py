"""Leases that a kernel ignores by its user's word."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from typing import Iterator, Optional

import pytest
from gpu_names import new_uuid
from leases import answering, take_lease
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.claim import Claim, ClaimGranted, ClaimPending
from jupyter_gpu_kernel.agent.gpus.devices.gpu import Gpu
from jupyter_gpu_kernel.agent.gpus.judge import Criteria
from jupyter_gpu_kernel.agent.gpus.sampler import Sample
from jupyter_gpu_kernel.agent.gpus.sharing import announcements
from jupyter_gpu_kernel.agent.gpus.sharing.ignored_leases import UNUSED_FOR, IgnoredLeases
from jupyter_gpu_kernel.agent.gpus.sharing.lease import (
    IGNORING_PREFIX,
    PREFIX,
    Holder,
    LeaseReader,
    LeaseTaker,
)

BOB = Holder("bob", 7, "ab12", 5.0, 1001)
IDLE = BOB._replace(idle_since=9.0)
SILENT = Holder("bob", 0, "?", None, 1001, answers=False)
MINE = Holder("me", 7, "ab12", 5.0, 0, yours=True, idle_since=9.0)
MY_SILENT = Holder("me", 7, "?", 5.0, 0, yours=True, answers=False)


@pytest.mark.parametrize(
    ("holder", "at_once", "later"),
    [
        (BOB, False, True),
        (IDLE, True, True),
        (SILENT, True, True),
        (MINE, False, False),
        (MY_SILENT, True, True),
    ],
)
def test_whose_lease_is_ignored(holder: Holder, at_once: bool, later: bool) -> None:
    leases, ignored = dict.fromkeys(("GPU-1", "GPU-2"), holder), IgnoredLeases(["GPU-1"])
    ignored.add(0, leases, ["GPU-1", "GPU-2"], 60)
    assert ignored.ignores("GPU-1", holder) is at_once
    for now in range(0, int(UNUSED_FOR) + 1, 60):
        ignored.add(now, leases, ["GPU-1", "GPU-2"], 60)
    assert ignored.ignores("GPU-1", holder) is later
    assert not ignored.ignores("GPU-2", holder), "nobody named it"
    assert ("will be ignored" in str(ignored.explain("GPU-1", holder))) is (
        holder.id == "?" or not holder.yours
    )
    assert ignored.explain("GPU-2", holder) == holder


@pytest.mark.parametrize("disturbance", ["used", "another", "gap"])
def test_unused_without_interruption(disturbance: str) -> None:
    ignored = IgnoredLeases(["GPU-1"])
    for now in range(0, int(UNUSED_FOR) + 1, 60):
        late = 1 if disturbance == "gap" and now > 300 else 0
        holder = BOB._replace(pid=8) if disturbance == "another" and now > 300 else BOB
        unused = [] if disturbance == "used" and now == 300 else ["GPU-1"]
        ignored.add(now + late, {"GPU-1": holder}, unused, 60)
    assert not ignored.ignores("GPU-1", holder)


@pytest.fixture
def gpu() -> Gpu:
    """One that exists nowhere."""
    return Gpu(0, new_uuid(), "A100", 81920, 1, 600, 0, "Default", "Disabled")


@pytest.fixture
def squatter(gpu: Gpu) -> Iterator[socket.socket]:
    """A socket that has the name of the GPU's lease, and does not answer."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("\0" + PREFIX + gpu.uuid)
        yield bound


class Node:
    """A GPU with its leases as they are, and the claims of several kernels."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.reader = LeaseReader(RUNTIME)

    def claim(self, ignores: bool, kernel: str = "k") -> Claim:
        ignored = [self.gpu.uuid] if ignores else []
        taker = LeaseTaker(RUNTIME, {"id": kernel}, dict, ignored)
        return Claim(RUNTIME, taker, ignored=ignored, criteria=Criteria(samples=1, span=0.0))

    def sample(self) -> Sample:
        return Sample(time.monotonic(), [self.gpu], self.reader.read([self.gpu.uuid], timeout=0.5))

    def settle(self, claim: Claim) -> Optional[ClaimGranted]:
        for _ in range(3):
            claim.add(self.sample())
            outcome = claim.decide()
            if isinstance(outcome, ClaimGranted):
                return outcome
        assert isinstance(outcome, ClaimPending) and "leased by your" in outcome.text
        return None


def test_a_kernel_takes_the_gpu_beside_the_lease_that_it_ignores(gpu: Gpu, squatter: socket.socket) -> None:
    node = Node(gpu)
    assert node.settle(node.claim(ignores=False)) is None
    granted = node.settle(node.claim(ignores=True))
    assert granted and [lease.name for lease in granted.leases] == [f"{gpu.uuid}.k"]
    assert "which does not answer" in str(granted.ignored[gpu.uuid])
    with answering(granted.leases[0]):
        assert node.settle(node.claim(ignores=True, kernel="other")) is None, "only one kernel"
        holder = node.sample().holders()[gpu.uuid]
        assert (holder.id, "it ignores the lease of" in str(holder)) == ("k", True)
        squatter.close()
        assert node.settle(node.claim(ignores=False)) is None, "although the first lease was released"
        assert take_lease(gpu.uuid, {"id": "other"}) is None
    lease = take_lease(gpu.uuid, {"id": "other"})
    assert lease is not None and not lease.ignores_another
    lease.release()


def test_nobody_can_have_both_names(gpu: Gpu, squatter: socket.socket) -> None:
    """A second squatter, beside the first one, is ignored as well."""
    second = announcements.bind(RUNTIME, f"{IGNORING_PREFIX}{gpu.uuid}.squatter")
    assert second is not None
    with second:
        granted = Node(gpu).settle(Node(gpu).claim(ignores=True))
        assert granted is not None
        granted.leases[0].release()


def test_a_gpu_without_a_lease_is_preferred(gpu: Gpu, squatter: socket.socket) -> None:
    node = Node(gpu)
    claim, other = node.claim(ignores=True), replace(gpu, index=1, uuid=new_uuid())
    for _ in range(2):
        claim.add(node.sample()._replace(gpus=[gpu, other]))
        outcome = claim.decide()
    assert isinstance(outcome, ClaimGranted) and [lease.uuid for lease in outcome.leases] == [other.uuid]
    outcome.leases[0].release()


def test_it_is_handed_over_as_what_it_is(gpu: Gpu, squatter: socket.socket) -> None:
    taker = LeaseTaker(RUNTIME, {"id": "k"}, dict, [gpu.uuid])
    lease = taker.take(gpu.uuid)
    assert lease is not None
    listener = socket.socket(fileno=os.dup(lease.announcement.fileno()))
    (second,) = LeaseTaker(RUNTIME, {"id": "k2"}).take_over([listener])
    assert (second.uuid, second.name) == (gpu.uuid, f"{gpu.uuid}.k")
    second.release()
    lease.release()
    other = socket.socket(socket.AF_UNIX)
    assert not taker.take_over([other]) and other.fileno() < 0


def test_an_ignored_lease_that_another_kernel_has_by_now(gpu: Gpu) -> None:
    """Between the sample and the lease, the squatter has left and a kernel has come."""
    node = Node(gpu)
    claim = node.claim(ignores=True)
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind("\0" + PREFIX + gpu.uuid)
        claim.add(node.sample())
        assert isinstance(claim.decide(), ClaimPending)
    claim.add(node.sample()._replace(leases={gpu.uuid: BOB}))
    waits = claim.decide()
    assert isinstance(waits, ClaimPending) and "leased by bob" in waits.text
    assert node.sample().holders() == {}, "given back"
