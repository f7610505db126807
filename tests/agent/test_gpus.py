"""Judging and claiming. Judging is pure; claims take real leases on GPUs that exist nowhere."""

from __future__ import annotations

import dataclasses
import math
import os
import time
import uuid
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

import pytest
from leases import read_leases, take_lease
from runtimes import RUNTIME, Clock

from jupyter_gpu_kernel.agent.gpus.claim import Claim, ClaimGranted, ClaimPending
from jupyter_gpu_kernel.agent.gpus.devices.gpu import NVIDIA, Gpu, GpuProcess, SmiError
from jupyter_gpu_kernel.agent.gpus.judge import (
    Criteria,
    Verdict,
    choose,
    judge,
    waiting_text,
)
from jupyter_gpu_kernel.agent.gpus.requirements import Allocation, Requirements
from jupyter_gpu_kernel.agent.gpus.sampler import Sample
from jupyter_gpu_kernel.agent.gpus.sharing import queue_view
from jupyter_gpu_kernel.agent.gpus.sharing.lease import Holder, Lease, LeaseTaker
from jupyter_gpu_kernel.agent.gpus.sharing.turns import WaitingKernel, gpu_bits
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings

NO_MEMORY = "the driver does not report its memory, of which 953 MiB are requested"
DRIVERS_MEMORY = "it has 80.0 GiB of memory, of which the driver keeps 600 MiB, but 80.0 GiB are requested"
BOB = GpuProcess(1234, "bob", 12186, "python")


def gpu(index: int = 0, **facts: Any) -> Gpu:
    idle = Gpu(index, f"GPU-{index}", "A100", 81920, 1, 600, 0, "Default", "Disabled")
    return dataclasses.replace(idle, **facts)


def kernel(gpus: int = 1, usable: int = (1 << 64) - 1) -> WaitingKernel:
    return WaitingKernel("k", os.getuid(), 1.0, gpus, usable=usable)


def verdict(*samples: Gpu, **words: Any) -> Verdict:
    """On one GPU, from its samples (one stands for three)."""
    seen = list(samples) * (3 if len(samples) == 1 else 1)
    (only,) = judge([[sample] for sample in seen], **words)
    return only


@pytest.mark.parametrize(
    ("min_memory", "gpu_type", "facts", "unusable", "reason"),
    [
        ("80G", "a100", {}, False, ""),
        ("", "3090", {}, True, "its name does not contain “3090”"),
        ("81G", "", {}, False, ""),
        ("90G", "", {}, True, "it has 80.0 GiB of memory, but 83.8 GiB are requested"),
        ("80GiB", "", {"memory_reserved_mib": 0, "memory_used_mib": 300}, False, ""),
        ("80GiB", "", {}, True, DRIVERS_MEMORY),
        ("1G", "", {"memory_total_mib": None}, True, NO_MEMORY),
        ("", "", {"memory_total_mib": None}, False, ""),
        ("", "A100", {"problem": "GPU is lost"}, True, "GPU is lost"),
    ],
)  # fmt: skip
def test_a_kernel_requires_memory_and_a_type(
    min_memory: str, gpu_type: str, facts: Dict[str, Any], unusable: bool, reason: str
) -> None:
    needs = Requirements.of(KernelSettings(min_memory=min_memory, gpu_type=gpu_type))
    found = verdict(gpu(**facts), needs=needs)
    assert (found.free, found.unusable, found.reason) == (not reason, unusable, reason)


def test_of_several_free_gpus_the_one_with_the_most_free_memory_is_chosen() -> None:
    found = judge([[gpu(0, memory_used_mib=400), gpu(1), gpu(2, memory_total_mib=90000)]] * 3)
    assert choose(found, 1) == [found[2].gpu]
    assert choose(found[:2], 1) == [found[0].gpu], "what a display uses makes no difference"
    assert choose(found, 1, [kernel()]) == [found[0].gpu]
    assert choose(found, 2) == [found[0].gpu, found[1].gpu]


def test_an_idle_gpu_is_free() -> None:
    assert verdict(gpu()) == Verdict(gpu(), True)
    assert verdict(gpu(memory_used_mib=500, utilization=9)).free, "the display and the driver may use some"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"processes": (BOB,)}, "in use by bob (pid 1234, python, 11.9 GiB)"),
        ({"processes": (GpuProcess(0, "?", None, "?"),)}, "in use by an unknown user (pid ?, ?)"),
        (
            {"processes": (GpuProcess(7, "amy", 600, "jupyter"), BOB)},
            "in use by bob and amy (pid 1234, python, 11.9 GiB, 1 more)",
        ),
        (
            {"memory_used_mib": 8000},
            "7.8 GiB are used by no visible process (perhaps in a container, or already ended)",
        ),
        ({"memory_used_mib": 400}, None),
        (
            {"memory_used_mib": 401},
            "401 MiB are used by no visible process (perhaps in a container, or already ended)",
        ),
        *(
            (
                {"memory_used_mib": 8000, "utilization": percent},
                "7.8 GiB are used by no visible process (perhaps in a container, or already ended)",
            )
            for percent in (1, 9, 10, 100)
        ),
        ({"memory_used_mib": None}, "the driver does not report its memory use ([N/A])"),
        ({"utilization": 97}, "busy: up to 97 % utilization in 3 samples, although no process is visible"),
        ({"utilization": 97, "memory_used_mib": 300}, "busy: up to 97 % utilization in 3 samples"),
        ({"utilization": None}, None),
        (
            {"utilization": None, "memory_used_mib": 300},
            "the driver does not report its utilization ([N/A]), and 300 MiB are used",
        ),
        ({"compute_mode": "Exclusive_Process"}, None),
        ({"compute_mode": None, "mig_mode": None, "memory_reserved_mib": None}, None),
    ],
)
def test_reasons(facts: Dict[str, Any], reason: Optional[str]) -> None:
    criteria = Criteria(unexplained_mib=400)
    found = verdict(gpu(**facts), criteria=criteria)
    assert (found.free, found.reason, found.unusable) == (reason is None, reason or "", False)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"compute_mode": "Prohibited"}, "compute mode Prohibited"),
        ({"mig_mode": "Enabled"}, "MIG mode is enabled"),
        ({"problem": "the driver has lost it"}, "the driver has lost it"),
    ],
)
def test_unusable(facts: Dict[str, Any], reason: str) -> None:
    found = verdict(gpu(**facts))
    assert not found.free and found.unusable and found.reason.startswith(reason)


def test_since_when() -> None:
    found = verdict(gpu(processes=(BOB._replace(since=time.mktime((2031, 5, 2, 14, 2, 0, 0, 0, -1))),)))
    assert found.reason == "in use by bob (pid 1234, python, 11.9 GiB, since May 02 14:02)"


def test_a_process_that_does_nothing_now() -> None:
    idle = BOB._replace(cpu_seconds=41.2)
    assert verdict(gpu(processes=(idle,))).reason.endswith("11.9 GiB, 0 % now, 41 s of CPU time so far)")
    for percent in (7, None):
        assert verdict(gpu(processes=(idle,), utilization=percent)).reason.endswith("11.9 GiB)")


def test_a_holder_is_idle_only_if_the_gpu_is() -> None:
    holder = Holder("bob", 7, "ab12", 5.0, 1, idle_since=9.0)

    def idle_since(*samples: Gpu) -> Optional[float]:
        (found,) = judge([[one] for one in samples], leases={"GPU-0": holder})
        return found.idle_since

    assert idle_since(gpu(), gpu(), gpu()) == 9.0 == idle_since(gpu(utilization=None))
    assert idle_since(gpu(), gpu(utilization=3), gpu()) is None
    (found,) = judge([[gpu()]], leases={"GPU-0": holder})
    assert found.to_json()["idle_since"] == 9.0 == found.to_json()["lease"]["idle_since"]


def test_one_quiet_sample_proves_nothing() -> None:
    used = gpu(memory_used_mib=120)  # by a display
    assert verdict(used, used).reason == "being checked: 2 of 3 samples taken" and verdict(used, used).pending
    assert verdict(gpu(utilization=80), gpu(), gpu(utilization=3)).reason.startswith(
        "busy: up to 80 % utilization in 3 samples"
    )
    assert verdict(gpu(utilization=80), gpu(), gpu(), gpu()).free, "only the last three count"
    ended = verdict(gpu(), gpu(processes=(BOB,)), gpu())
    assert ended.reason == "a moment ago: in use by bob (pid 1234, python, 11.9 GiB)" and ended.pending
    assert not verdict(gpu(processes=(BOB,)), gpu(processes=(BOB,))).pending
    assert not verdict(gpu(processes=(BOB,)), gpu(), leases={"GPU-0": Holder("al", 1, "k", 5.0, 1)}).pending
    assert judge([]) == []


@pytest.mark.parametrize(
    ("facts", "free"),
    [
        ({}, True),
        ({"memory_used_mib": 64}, True),
        ({"memory_used_mib": 65}, False),
        ({"memory_used_mib": None}, False),
        ({"utilization": 1}, False),
        ({"utilization": None}, False),
        ({"uuid": "AMD-0"}, False),
        ({"processes": (BOB,)}, False),
    ],
)
def test_one_sample_is_enough_only_if_nothing_at_all_is_on_the_gpu(facts: Dict[str, Any], free: bool) -> None:
    (found,) = judge([[gpu(**facts)]])
    assert found.free == free and found.pending == (found.reason == "being checked: 1 of 3 samples taken")


def test_a_gpu_that_was_freed_is_sampled_soon_again() -> None:
    """The kernel that waits has it after two quiet seconds, and not after two more of its usual intervals."""
    clock = Clock()
    claim = Claim(clock, LeaseTaker(clock, {"id": "k"}))
    one = gpu(uuid=f"GPU-{uuid.uuid4()}")
    delays = []
    for users in ((BOB,), (BOB,), (BOB,), (), (), ()):
        claim.add(Sample(clock.monotonic(), [dataclasses.replace(one, processes=users)], {}))
        outcome = claim.decide()
        assert isinstance(outcome, ClaimPending)
        delays.append(outcome.delay)
        clock.seconds += outcome.delay
    assert 2.0 <= delays[2] <= 3.0 and delays[3:5] == [1.0, 1.0]
    assert outcome.text.startswith("Checking once more")
    claim.release()


def test_leases_of_others() -> None:
    alice = Holder("alice", 99, "ab12", 5.0, 2001)
    found = verdict(gpu(), leases={"GPU-0": alice})
    when = time.strftime("%b %d %H:%M", time.localtime(5.0))
    assert (found.free, found.reason) == (False, f"leased by alice (kernel ab12, pid 99, since {when})")
    lease = found.to_json()["lease"]
    assert lease.items() >= {"user": "alice", "pid": 99, "id": "ab12", "since": 5.0, "yours": False}.items()
    assert verdict(gpu(), leases={"GPU-1": alice}).free


@pytest.mark.parametrize(
    ("environ", "allowed", "given"),
    [
        ({}, None, False),
        ({"CUDA_VISIBLE_DEVICES": "1, 0"}, ["1", "0"], False),
        ({"CUDA_VISIBLE_DEVICES": ""}, [], False),
        ({"CUDA_VISIBLE_DEVICES": "2,-1,0", "PBS_JOBID": "7"}, ["2"], True),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,MIG-2", "SLURM_JOB_ID": "7"}, ["GPU-1", "MIG-2"], True),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles", "LSB_JOBID": "7"}, [], True),
        ({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "gpu1"}, [], False),
        ({"SLURM_JOB_ID": "7"}, None, False),
    ],
)
def test_what_the_environment_allows(
    environ: Dict[str, str], allowed: Optional[List[str]], given: bool
) -> None:
    assert Allocation.of(environ, NVIDIA) == (NVIDIA, allowed, allowed if given and allowed else [])


def test_only_the_allowed_are_taken() -> None:
    for allowed in (["1"], ["GPU-1"], ["GPU-1", "MIG-7"]):
        found = judge([[gpu(0), gpu(1)]] * 3, needs=Requirements(allowed=allowed))
        assert [one.free for one in found] == [False, True]
        assert found[0].unusable and found[0].reason.startswith("not in the allocation")
    assert not any(one.free for one in judge([[gpu(0), gpu(1)]] * 3, Requirements(allowed=[])))


def test_mig_devices_are_offered_and_their_gpu_is_not() -> None:
    parted = gpu(0, mig_mode="Enabled", utilization=None)
    devices = [
        gpu(0, uuid=f"MIG-{number}", parent="GPU-0", mig_mode=None, memory_used_mib=37, utilization=None)
        for number in range(2)
    ]
    used = dataclasses.replace(devices[1], processes=(BOB,))
    found = judge([[parted, devices[0], used, gpu(1, mig_mode="Enabled")]] * 3)
    assert [one.reason for one in found] == [
        "MIG mode is enabled: see its MIG devices",
        "",
        "in use by bob (pid 1234, python, 11.9 GiB)",
        "MIG mode is enabled: it has no MIG device",
    ]
    assert [one.unusable for one in found] == [True, False, False, True]
    assert choose(found, 1) == devices[:1]
    two = judge([[parted, *devices]] * 3, Requirements(gpus=2))
    assert {one.reason for one in two[1:]} == {"a process can use only one MIG device"}
    allowed = judge([[parted, *devices]] * 3, Requirements(allowed=["MIG-1"]))
    assert [one.free for one in allowed] == [False, False, True]


def test_choosing() -> None:
    found = judge([[gpu(2), gpu(0, utilization=50), gpu(1)]] * 3)
    assert choose(found, 1) == [gpu(1)]
    assert choose(found, 2) == [gpu(1), gpu(2)]
    assert choose(found, 3) is None
    three = judge([[gpu(0), gpu(1), gpu(2)]] * 3)
    assert choose(three, 2, (), {(0, 2): 7, (2, 0): 7}) == [gpu(0), gpu(2)]
    assert choose(three, 2, [kernel(1, gpu_bits(["GPU-2"]))], {(0, 2): 7, (2, 0): 7}) == [gpu(0), gpu(1)]
    assert choose(found, 1, [kernel()]) == [gpu(2)]
    assert choose(found, 1, [kernel(), kernel()]) is None
    assert choose(found, 1, [kernel(2)]) is None
    assert choose(found, 1, [kernel(99)._replace(passed="why"), kernel()]) == [gpu(2)]
    assert choose(found, 1, [kernel(2, gpu_bits(["GPU-1"]))]) == [gpu(2)], "it can only use GPU 1"
    assert choose(found, 2, [kernel(4, gpu_bits(["GPU-0"]))]) == [gpu(1), gpu(2)]


def test_the_text_of_a_waiting_cell() -> None:
    waits = [kernel(), WaitingKernel("z", 4294967294, math.inf, 2)]
    text = waiting_text(judge([[gpu(0, processes=(BOB,)), gpu(1)]] * 3), 2, "gpu2", waits)
    assert text.split("\n") == [
        "Waiting for 2 GPUs on gpu2. They are taken together or not at all. "
        "Position 3 in the queue, behind 1 of your kernels and 1 of uid 4294967294's. "
        "Interrupt the kernel to stop waiting.",
        "  GPU 0 (A100): in use by bob (pid 1234, python, 11.9 GiB)",
        "  GPU 1 (A100): free",
        "These kernels come first:",
        f"  your kernel k: 1 GPU, since {time.strftime('%b %d %H:%M', time.localtime(1))}",
        "  uid 4294967294: 2 GPUs",
    ]
    waits.insert(0, WaitingKernel("x", 4294967294, math.inf, 99)._replace(passed="why"))
    assert waiting_text(judge([[gpu(0)]]), 2, "gpu2", waits).endswith(
        "  uid 4294967294: 2 GPUs\nThese places are passed over:\n  uid 4294967294: 99 GPUs: why"
    )
    assert "your kernel k (a.ipynb): 1 GPU" in waiting_text(
        [], 2, "", waits, "", {"k": "a.ipynb", "x": "b.ipynb"}
    )
    assert "Position 3 in" in waiting_text([], 2, "", waits)
    many = queue_view.lines([kernel()] * 12, {})
    assert len(many) == 1 + queue_view.MOST_LINES and many[-1] == "  and 5 more"
    assert queue_view.lines([], {}) == []


def test_who_waits_for_a_gpu() -> None:
    """What is known only of one's own kernels is in no row of another user's."""
    mine = kernel(2, gpu_bits(["GPU-1"]))._replace(priority=5)
    other = WaitingKernel("other", 4294967294, math.inf, 1, 7, gpu_bits(["GPU-1", "GPU-2"]))
    first, second = queue_view.rows([other, mine], "GPU-1", {"k": "a.ipynb", "other": "b.ipynb"})
    assert (first["place"], first["since"], first["priority"], first["notebook"]) == (1, None, None, "")
    assert (second["place"], second["since"], second["priority"], second["notebook"]) == (
        2,
        1.0,
        5,
        "a.ipynb",
    )
    assert (second["gpus"], second["yours"], first["yours"]) == (2, True, False)
    assert [row["id"] for row in queue_view.rows([other, mine], "GPU-2", {})] == ["other"]


def step(
    claim: Claim, sample: Sample, ahead: Sequence[WaitingKernel] = ()
) -> Union[ClaimGranted, ClaimPending]:
    claim.add(sample)
    return claim.decide(ahead)


class Node:
    """GPUs that exist nowhere, their leases as they are, and a clock: each sample begins 0.3 s after the last one.

    A display uses some of their memory: they are idle, but not empty.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.tag = uuid.uuid4()
        self.gpus = [gpu(index, uuid=f"GPU-{self.tag}-{index}", memory_used_mib=120) for index in range(2)]
        self.taken: List[Lease] = []

    def report(self, index: int, **facts: Any) -> None:
        self.gpus[index] = dataclasses.replace(self.gpus[index], **facts)

    def sample(self) -> Sample:
        self.clock.sleep(0.3)
        return Sample(self.clock.monotonic(), list(self.gpus), self.leases())

    def claim(self, count: int = 1, allowed: Optional[List[str]] = None) -> Claim:
        needs = Requirements(gpus=count, allowed=allowed)
        return Claim(self.clock, LeaseTaker(RUNTIME, {"id": "t"}), needs)

    def leases(self) -> Dict[str, Holder]:
        return read_leases([one.uuid for one in self.gpus], timeout=0.01)

    def settle(self, claim: Claim, ahead: Sequence[WaitingKernel] = ()) -> Union[ClaimGranted, ClaimPending]:
        """Samples until the GPUs are taken, or nothing new can come of more."""
        for _ in range(5):
            outcome = step(claim, self.sample(), ahead)
            if isinstance(outcome, ClaimGranted):
                self.taken += outcome.leases
                break
        return outcome


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    for lease in made.taken:
        lease.release()


def test_a_claim_takes_the_first_free_gpu(node: Node) -> None:
    node.report(0, processes=(BOB,))
    mine = node.claim()
    first = step(mine, node.sample())
    assert isinstance(first, ClaimPending) and 0 < first.delay <= Criteria().interval
    assert "being checked" in first.text and not node.leases()
    step(mine, node.sample())
    leased = step(mine, node.sample())
    assert (
        isinstance(leased, ClaimPending) and leased.delay == 0 and list(node.leases()) == [node.gpus[1].uuid]
    )
    taken = step(mine, node.sample())
    assert isinstance(taken, ClaimGranted) and [one.uuid for one in taken.leases] == [node.gpus[1].uuid]
    node.taken += taken.leases
    mine.release()
    assert list(node.leases()) == [node.gpus[1].uuid], "what is taken is the caller's"


def test_samples_at_hand_decide_at_once_but_are_confirmed_by_a_new_one(node: Node) -> None:
    mine = node.claim()
    assert mine.delay() == 0
    for _ in range(3):
        assert not mine.can_decide
        mine.add(node.sample())
        assert mine.delay() <= Criteria().interval
    node.clock.sleep(0.1)
    assert mine.has_all_samples and mine.can_decide and not node.leases()
    assert isinstance(mine.decide(), ClaimPending) and node.leases()
    assert isinstance(mine.decide(), ClaimPending), "no sample since the lease"
    assert isinstance(node.settle(mine), ClaimGranted)


def test_a_gpu_that_an_older_sample_left_over_is_for_the_kernel_that_comes_first(node: Node) -> None:
    """Both looked free, and the other one was taken since: a kernel that has asked before waits for this one."""
    usable = gpu_bits(one.uuid for one in node.gpus)
    ahead = [WaitingKernel("first", os.getuid(), 1.0, 1, usable=usable, pid=1)]
    mine, other = node.claim(), node.claim(allowed=[node.gpus[0].uuid])
    for _ in range(3):
        mine.add(node.sample())
    assert isinstance(node.settle(other), ClaimGranted)
    mine.decide(ahead)
    assert node.gpus[1].uuid in node.leases()
    assert isinstance(step(mine, node.sample(), ahead), ClaimPending) and list(node.leases()) == [
        node.gpus[0].uuid
    ]
    assert isinstance(node.settle(mine), ClaimGranted), "once that kernel waits no longer"


def test_one_sample_is_enough_for_an_empty_gpu_and_the_one_that_confirms_begins_later(node: Node) -> None:
    node.report(0, memory_used_mib=1)
    mine = node.claim()
    mine.add(node.sample())
    assert mine.can_decide and not mine.has_all_samples and mine.delay() == Criteria().unhurried
    leased = mine.decide()
    assert isinstance(leased, ClaimPending) and leased.delay == pytest.approx(Criteria().span)
    early = node.sample()._replace(time=node.clock.monotonic() - 0.1)  # 0.2 s after the first one
    assert isinstance(step(mine, early), ClaimPending) and list(node.leases()) == [node.gpus[0].uuid]
    taken = step(mine, node.sample())
    assert isinstance(taken, ClaimGranted) and [one.uuid for one in taken.leases] == [node.gpus[0].uuid]
    node.taken += taken.leases


@pytest.mark.parametrize(
    "facts", [{"processes": (BOB,)}, {"utilization": 5}, {"utilization": None}, {"memory_used_mib": 900}]
)
def test_whoever_begins_to_use_an_empty_gpu_keeps_it(node: Node, facts: Dict[str, Any]) -> None:
    """Also a little load without a process: then it is not empty, and is sampled as long as any other GPU."""
    node.report(0, memory_used_mib=1)
    node.report(1, processes=(BOB,))
    mine = node.claim()
    step(mine, node.sample())
    assert list(node.leases()) == [node.gpus[0].uuid]
    node.report(0, **{"memory_used_mib": 120, **facts})
    assert isinstance(step(mine, node.sample()), ClaimPending) and not node.leases()


def test_a_gpu_that_was_used_a_moment_ago_is_not_taken_at_once(node: Node) -> None:
    node.report(1, processes=(BOB,))
    mine = node.claim()
    for used in ({"processes": (BOB,)}, {"memory_used_mib": 120}, {"utilization": 3}):
        node.report(0, **used)
        step(mine, node.sample())
        node.report(0, processes=(), memory_used_mib=1, utilization=0)
        for _ in range(2):
            assert isinstance(step(mine, node.sample()), ClaimPending)
        mine.release()
        mine = node.claim()
    assert not node.leases()


def test_old_samples_say_nothing(node: Node) -> None:
    mine = node.claim()
    for _ in range(3):
        mine.add(node.sample()._replace(time=node.clock.monotonic() - 61))
    outcome = mine.decide()
    assert (
        not mine.can_decide and isinstance(outcome, ClaimPending) and outcome.delay == 0 and not node.leases()
    )


def test_somebody_was_quicker_without_a_lease(node: Node) -> None:
    mine = node.claim()
    for _ in range(3):
        step(mine, node.sample())
    assert list(node.leases()) == [node.gpus[0].uuid]
    node.report(0, processes=(BOB,))
    outcome = step(mine, node.sample())
    assert isinstance(outcome, ClaimPending) and "in use by bob" in outcome.text and not node.leases()
    taken = node.settle(mine)
    assert isinstance(taken, ClaimGranted) and taken.leases[0].uuid == node.gpus[1].uuid


def test_two_claims_share_the_node(node: Node) -> None:
    assert isinstance(node.settle(node.claim()), ClaimGranted)
    assert isinstance(node.settle(node.claim()), ClaimGranted)
    node.report(1, processes=(BOB,))
    third = node.claim()
    outcome = node.settle(third)
    assert isinstance(outcome, ClaimPending) and outcome.text.count("leased by your ") == 2
    assert Criteria().wait[0] <= outcome.delay <= Criteria().wait[1]
    node.taken.pop().release()
    node.report(1, processes=())
    for _ in range(2):  # the older samples show the use by the kernel that had the lease
        outcome = step(third, node.sample())
        assert isinstance(outcome, ClaimPending) and outcome.delay <= Criteria().unhurried
    assert isinstance(node.settle(third), ClaimGranted)


def test_kernels_whose_turn_comes_first_are_served_first(node: Node) -> None:
    second, third = node.claim(), node.claim()
    assert isinstance(node.settle(third, [kernel(), kernel()]), ClaimPending) and not node.leases()
    taken = node.settle(second, [kernel()])
    assert isinstance(taken, ClaimGranted) and [one.uuid for one in taken.leases] == [node.gpus[1].uuid]


def test_a_kernel_out_of_reach_of_all_gpus_needs_no_new_sample(node: Node) -> None:
    mine = node.claim()
    assert not mine.is_out_of_reach([kernel(2)]), "there is no sample yet"
    for _ in range(3):
        mine.add(node.sample())
    assert mine.is_out_of_reach([kernel(), kernel()])
    assert not mine.is_out_of_reach([kernel()])
    only_one = gpu_bits([node.gpus[0].uuid])
    assert not mine.is_out_of_reach([kernel(1, only_one), kernel(1, only_one)]), (
        "they cannot use the other GPU"
    )
    pending = mine.decide([kernel(2)])
    assert isinstance(pending, ClaimPending) and pending.delay >= Criteria().wait[0]
    mine.decide()
    assert node.leases() and not mine.is_out_of_reach([kernel(2)]), "its leases are to be confirmed"
    mine.release()


def test_never_a_part(node: Node) -> None:
    node.report(0, processes=(BOB,))
    both = node.claim(2)
    assert isinstance(node.settle(both), ClaimPending) and not node.leases()
    node.report(0, processes=())
    taken = node.settle(both)
    assert isinstance(taken, ClaimGranted) and len(taken.leases) == 2


def test_a_lease_is_lost_between_sample_and_lease(node: Node) -> None:
    mine = node.claim(2)
    samples = [node.sample() for _ in range(3)]
    other = take_lease(node.gpus[1].uuid, {})
    assert other is not None
    node.taken.append(other)
    for sample in samples:
        outcome = step(mine, sample)
    assert isinstance(outcome, ClaimPending) and list(node.leases()) == [node.gpus[1].uuid]


def test_who_comes_too_late_looks_again_at_once(node: Node) -> None:
    """The other GPU may be free; but where a sample never shows the lease, nvidia-smi does not run all the time."""
    mine, unseen = node.claim(), [Sample(node.clock.monotonic(), list(node.gpus), {}) for _ in range(7)]
    for sample in unseen[:2]:
        step(mine, sample)
    lease = take_lease(node.gpus[0].uuid, {"id": "other"})
    assert lease is not None
    node.taken.append(lease)
    delays = []
    for sample in unseen[2:]:
        outcome = step(mine, sample)
        assert isinstance(outcome, ClaimPending)
        delays.append(outcome.delay <= Criteria().interval)
    assert delays == [True, True, True, False, True]
    assert isinstance(node.settle(mine), ClaimGranted)


def test_giving_up_holds_nothing(node: Node) -> None:
    mine = node.claim()
    for _ in range(3):
        step(mine, node.sample())
    assert node.leases()
    mine.release()
    assert not node.leases()


def test_asking_for_what_is_not_there_is_refused_at_once(node: Node) -> None:
    node.report(1, mig_mode="Enabled")
    with pytest.raises(SmiError, match="2 GPUs requested, but this node has 1 that can be used") as caught:
        step(node.claim(2), node.sample())
    assert (
        caught.value.code == "few"
        and "MIG mode is enabled" in str(caught.value)
        and "--gpus" in caught.value.remedy
    )
    with pytest.raises(SmiError, match="has none that can be used"):
        step(node.claim(allowed=[]), node.sample())


def test_a_refusal_gives_back_what_was_held(node: Node) -> None:
    mine = node.claim(2)
    for _ in range(3):
        step(mine, node.sample())
    assert len(node.leases()) == 2
    node.report(1, problem="the driver has lost it")
    with pytest.raises(SmiError, match="lost"):
        step(mine, node.sample())
    assert not node.leases()
