"""The site's limits on the GPUs of one user."""

from __future__ import annotations

import dataclasses
import os
import sys
import textwrap
from pathlib import Path
from typing import Dict

import pytest
from gpu_names import new_uuid
from leases import run_in_own_network
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.claim import Claim, ClaimGranted, ClaimPending
from jupyter_gpu_kernel.agent.gpus.devices.gpu import Gpu
from jupyter_gpu_kernel.agent.gpus.judge import Criteria, judge
from jupyter_gpu_kernel.agent.gpus.requirements import Requirements, wait_reason
from jupyter_gpu_kernel.agent.gpus.sampler import Sample
from jupyter_gpu_kernel.agent.gpus.sharing.lease import LeaseTaker
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings


def gpu(index: int = 0, **facts: str) -> Gpu:
    idle = Gpu(index, new_uuid(), "A100", 81920, 1, 600, 0, "Default", "Disabled")
    return dataclasses.replace(idle, **facts)


def test_how_many_a_user_may_have() -> None:
    assert wait_reason(3, 1, others=2) == "" == wait_reason(None, 8, others=99)
    assert "allows a user 3 GPUs on this node, and your other kernels have 2" in wait_reason(3, 2, others=2)


def test_a_kernel_at_the_limit_waits_although_a_gpu_is_free() -> None:
    one = gpu()
    claim = Claim(RUNTIME, LeaseTaker(RUNTIME, {"id": "k"}), criteria=Criteria(samples=1, span=0.0))
    now = Sample(RUNTIME.monotonic(), [one], {})
    claim.add(now)
    waits = claim.decide([], "The site says no.")
    assert isinstance(waits, ClaimPending) and "The site says no. Interrupt" in waits.text
    assert claim.is_out_of_reach([], "The site says no.") and not claim.is_out_of_reach([])
    claim.decide([])
    claim.add(now._replace(time=RUNTIME.monotonic()))
    waits = claim.decide([], "Another kernel has joined the queue before.")
    assert isinstance(waits, ClaimPending), "also between the lease and its confirmation"
    claim.decide([])
    claim.add(now._replace(time=RUNTIME.monotonic()))
    granted = claim.decide([])
    assert isinstance(granted, ClaimGranted)
    for lease in granted.leases:
        lease.release()


@pytest.mark.parametrize(
    ("words", "reserved"),
    [([], False), (["0"], True), (["GPU-a"], True), (["*"], True), (["1", "GPU-b"], False)],
)
def test_reserved_gpus_are_never_offered(words: list[str], reserved: bool) -> None:
    needs = Requirements.of(KernelSettings(reserved_gpus=tuple(words)))
    for one in (gpu(uuid="GPU-ab12"), gpu(uuid="MIG-7", parent="GPU-ab12")):
        (verdict,) = judge([[one]], criteria=Criteria(samples=1), needs=needs)
        assert verdict.reason == ("reserved by the site's policy" if reserved else "")
        assert verdict.unusable is reserved


SHARES = textwrap.dedent("""
    import os, sys
    from jupyter_gpu_kernel.agent.gpus.sharing.lease import LeaseTaker
    from jupyter_gpu_kernel.agent.gpus.sharing.wait_queue import WaitQueue
    from jupyter_gpu_kernel.agent.system.loop import Loop
    from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime

    runtime = AgentRuntime()
    mine = WaitQueue(Loop(runtime), "m1", int(sys.argv[1]))
    mine.join(1)
    to_child, from_child = os.pipe(), os.pipe()
    if os.fork() == 0:  # another kernel of this user, which came later, and is about to confirm one of its three leases
        taker, queue = LeaseTaker(runtime, {"id": "o1"}), WaitQueue(Loop(runtime), "o1", 0)
        leases = taker.take_all(["GPU-1"])
        queue.join(3)
        queue.announce(["GPU-1", "GPU-2"])
        os.write(from_child[1], b"x")
        os.read(to_child[0], 1)
        os._exit(0)
    os.read(from_child[0], 1)
    leases = LeaseTaker(runtime, {"id": "m1"}).take_all(["GPU-9"])  # one's own do not count
    print(mine.share_before())
    os.write(to_child[1], b"x")
""")


@pytest.mark.parametrize(("priority", "share"), [(0, 1), (-1, 3)])
def test_what_ones_other_kernels_have_or_get_first(priority: int, share: int) -> None:
    assert run_in_own_network(SHARES, str(priority)).strip() == str(share)


OFFERS = textwrap.dedent("""
    from jupyter_gpu_kernel.agent.gpus.sharing.lease import LeaseTaker
    from jupyter_gpu_kernel.agent.gpus.offer import read_offer
    from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
    from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime

    leases = LeaseTaker(AgentRuntime(), {"id": "o1"}).take_all(["GPU-of-another-vendor"])
    for most in (1, 2):
        settings = KernelSettings(gpus=1, gpus_per_user=most)
        print(read_offer(AgentRuntime(), settings)["enough"])
""")


def test_a_node_where_the_user_has_enough_offers_none(tmp_path: Path) -> None:
    env = practice_gpus(tmp_path, '{"gpus": [{}]}')
    assert run_in_own_network(OFFERS, env=env).split() == ["False", "True"]


OTHERS_PLACE = textwrap.dedent("""
    import os, signal, sys
    from jupyter_gpu_kernel.agent.gpus.sharing.wait_queue import WaitQueue
    from jupyter_gpu_kernel.agent.system.loop import Loop
    from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime

    ready, write = os.pipe()
    other = os.fork()
    if not other:
        os.setuid(61235)
        queue = WaitQueue(Loop(AgentRuntime()), "others")
        queue.join(1)
        queue.announce(["GPU-00000000-0000-0000-0000-%012d" % number for number in range(2)])
        os.write(write, b"x")
        signal.pause()
    os.read(ready, 1)
""")

OFFER_BESIDE = OTHERS_PLACE + textwrap.dedent("""
    from jupyter_gpu_kernel.agent.gpus.offer import read_offer
    from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings

    for users in ((), ("61236",), ("61235",)):
        settings = KernelSettings(gpus=1, ignore_place=users)
        print(read_offer(AgentRuntime(), settings)["enough"])
    os.kill(other, signal.SIGKILL)
""")


def practice_gpus(tmp_path: Path, state: str) -> Dict[str, str]:
    """The environment in which nvidia-smi shows these GPUs."""
    (tmp_path / "gpus.json").write_text(state)
    path = f"{Path(__file__).parents[1] / 'programs'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "FAKE_NVIDIA_STATE": str(tmp_path / "gpus.json")}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_the_choice_among_hosts_passes_over_the_places_of_a_user_whom_the_setting_names(
    tmp_path: Path,
) -> None:
    env = practice_gpus(tmp_path, '{"gpus": [{}]}')
    assert run_in_own_network(OFFER_BESIDE, env=env).split() == ["False", "False", "True"]
