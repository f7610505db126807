"""The queue of kernels that wait, over real sockets, whose names every process of the node can read."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import uuid
from typing import Iterator, List

import pytest
from gpu_names import new_uuid
from leases import read_leases, run_in_own_network, take_lease
from runtimes import RUNTIME, ManualLoop
from streams import wait_for
from waiting import eventually

from jupyter_gpu_kernel.agent.gpus.sharing import announcements
from jupyter_gpu_kernel.agent.gpus.sharing.turns import WaitingKernel, gpu_bit, gpu_bits, in_turn
from jupyter_gpu_kernel.agent.gpus.sharing.wait_queue import QueueReader, WaitQueue
from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime
from jupyter_gpu_kernel.agent.system.loop import Loop

PREFIX = "jupyter-gpu-kernel/wait/"
ME = os.getuid()


@pytest.fixture
def ids() -> List[str]:
    """Three kernel ids that no other test run has."""
    return [f"{letter}{uuid.uuid4().hex[:12]}" for letter in "abc"]


@pytest.fixture
def gpus() -> List[str]:
    """The GPUs that these kernels can use; they exist nowhere."""
    first = second = new_uuid()
    while gpu_bit(first) == gpu_bit(second):  # else the others take them for one
        second = new_uuid()
    return [first, second]


@pytest.fixture
def queues(ids: List[str]) -> Iterator[List[WaitQueue]]:
    made = [WaitQueue(Loop(RUNTIME), kernel_id) for kernel_id in ids]
    yield made
    for queue in made:
        queue.leave()


def wait(queue: WaitQueue, gpus: List[str], count: int = 1) -> None:
    queue.join(count)
    queue.announce(gpus)


def waiting(ids: List[str]) -> List[WaitingKernel]:
    """Those of these kernels that wait, by id."""
    return sorted(one for one in QueueReader(RUNTIME).read() if one.kernel_id in ids)


def ahead(queue: WaitQueue, ids: List[str]) -> List[str]:
    return [one.kernel_id for one in queue.look() if one.kernel_id in ids]


def test_first_come_first_served(queues: List[WaitQueue], ids: List[str], gpus: List[str]) -> None:
    for queue in queues:
        wait(queue, gpus)
    assert [ahead(queue, ids) for queue in queues] == [[], ids[:1], ids[:2]]
    wait(queues[0], gpus)
    assert ahead(queues[0], ids) == [], "who asks again keeps the place"
    queues[0].leave()
    wait(queues[0], gpus)
    assert ahead(queues[0], ids) == ids[1:], "who comes again is the last"
    assert [one.gpus for one in waiting(ids)] == [1, 1, 1]


def test_the_place_is_from_when_the_kernel_joined(
    queues: List[WaitQueue], ids: List[str], gpus: List[str]
) -> None:
    """What it can use is known later; while nvidia-smi fails, it does not hold up others."""
    queues[0].join(1)
    wait(queues[1], gpus)
    assert ahead(queues[1], ids) == []
    queues[0].announce(gpus)
    assert ahead(queues[1], ids) == ids[:1] and ahead(queues[0], ids) == []
    queues[0].withdraw()
    assert ahead(queues[1], ids) == [] and ahead(queues[0], ids) == []


def test_a_priority_can_be_changed_while_the_kernel_waits(
    queues: List[WaitQueue], ids: List[str], gpus: List[str]
) -> None:
    for queue in queues:
        wait(queue, gpus, 2)
    queues[2].set_priority(7)
    assert [ahead(queue, ids) for queue in queues] == [ids[2:], [ids[2], ids[0]], []]
    assert [one.priority for one in waiting(ids)] == [0, 0, 7]
    queues[2].set_priority(0)
    assert ahead(queues[2], ids) == ids[:2], "the place by time is kept"


def test_a_user_who_had_gpus_meanwhile_comes_after_those_who_waited(ids: List[str], gpus: List[str]) -> None:
    """It is announced, so that all keepers know the same: else each of two could wait for the other."""
    queue = WaitQueue(Loop(RUNTIME), ids[0])
    wait(queue, gpus)
    (before,) = waiting(ids)
    queue._note_turn(True, before.since + 1)
    assert waiting(ids) == [before]
    queue._note_turn(False, before.since + 1.5)
    assert waiting(ids) == [before._replace(turn=before.since + 2)]
    queue._note_turn(False, before.since + 9)
    assert waiting(ids) == [before._replace(turn=before.since + 2)]
    queue.leave()
    wait(queue, gpus)
    assert [one.turn for one in waiting(ids)] == [0.0]
    queue.leave()


def test_users_alternate_also_if_they_have_a_gpu_only_for_a_moment() -> None:
    """Alice's three kernels came before Bob's two. Each has the only GPU between two looks of the others."""
    loop = ManualLoop()
    queues = {name: WaitQueue(loop, name) for name in ("a1", "a2", "a3", "b1", "b2")}
    for queue in queues.values():
        loop.advance(1)
        queue.join(1)
    uids = {"a": 1001, "b": 1002}
    served: List[str] = []
    while queues:
        places = [queue._me._replace(uid=uids[name[0]]) for name, queue in queues.items()]
        name = in_turn(places, {})[0].kernel_id
        served.append(name)
        del queues[name]
        pid = len(served)
        for holders in ({pid}, set()):  # the kernel claims the GPU, and still waits; then it has ended
            loop.advance(1)
            for other, queue in queues.items():
                own = holders if other[0] == name[0] else set()
                queue._note_holders(own, holders, loop.runtime.time())
    assert served == ["a1", "b1", "a2", "b2", "a3"]


TURNS = textwrap.dedent("""
    import os, signal
    from jupyter_gpu_kernel.agent.gpus.sharing.lease import LeaseTaker
    from jupyter_gpu_kernel.agent.gpus.sharing.wait_queue import QueueReader, WaitQueue
    from jupyter_gpu_kernel.agent.system.loop import Loop
    from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime

    runtime = AgentRuntime()
    queue = WaitQueue(Loop(runtime), "k1")
    queue.join(1)
    queue.announce(["GPU-1"])

    def has_had_gpus():
        queue.look()
        me = next(one for one in QueueReader(runtime).read() if one.kernel_id == "k1")
        return me.turn > 0

    def take():
        return LeaseTaker(runtime, {"id": "k"}).take("GPU-1")

    lease = take()
    claimed = has_had_gpus()
    lease.release()
    print(claimed, has_had_gpus())
    ready, write = os.pipe()
    other = os.fork()
    if other == 0:
        lease = take()
        os.write(write, b"x")
        signal.pause()
    os.read(ready, 1)
    held = has_had_gpus()
    os.kill(other, signal.SIGKILL)
    os.wait()
    print(held, has_had_gpus())

    queue.leave()
    queue.join(1)
    queue.announce(["GPU-1"])
    other = os.fork()
    if other == 0:
        place = WaitQueue(Loop(runtime), "k2")
        place.join(1)
        place.announce(["GPU-1"])
        lease = take()
        os.write(write, b"x")
        signal.pause()
    os.read(ready, 1)
    claims = has_had_gpus()
    os.kill(other, signal.SIGKILL)
    os.wait()
    print(claims, has_had_gpus())
""")


def test_a_claim_that_fails_costs_no_turn_and_a_gpu_that_goes_back_does() -> None:
    """A lease is there until a sample shows that somebody else has begun to use the GPU. Who had the GPU only between
    two looks was seen with the lease while it was about to confirm it."""
    found = run_in_own_network(TURNS)
    assert found.split() == ["False", "False", "False", "True", "False", "True"]


def test_what_a_kernel_can_use_is_known_to_the_others(
    queues: List[WaitQueue], ids: List[str], gpus: List[str]
) -> None:
    wait(queues[0], gpus[:1])
    wait(queues[1], gpus)
    wait(queues[2], gpus[1:])
    (first,) = [one for one in queues[1].look() if one.kernel_id == ids[0]]
    assert first.can_use(gpus[0])
    eventually(lambda: ahead(queues[2], ids) == [ids[1]], "it is read that the first one needs another GPU")


def test_who_confirms_its_leases_is_not_counted_twice(
    queues: List[WaitQueue], ids: List[str], gpus: List[str]
) -> None:
    wait(queues[0], gpus)
    wait(queues[1], gpus)
    lease = take_lease(gpus[0], {"id": ids[0]})
    assert lease is not None
    assert ahead(queues[1], ids) == ids[:1], "no sample has the lease"
    seen = read_leases(gpus, timeout=0.0).values()
    assert ids[0] not in [one.kernel_id for one in queues[1].look(seen)]
    lease.release()


def test_the_death_of_a_keeper_frees_its_place(ids: List[str]) -> None:
    code = (
        "import sys; from jupyter_gpu_kernel.agent.gpus.sharing.wait_queue import WaitQueue\n"
        "from jupyter_gpu_kernel.agent.system.loop import Loop\n"
        "from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime\n"
        f"queue = WaitQueue(Loop(AgentRuntime()), {ids[0]!r}); queue.join(1); queue.announce(['GPU-1'])\n"
        "print('joined', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as keeper:
        assert keeper.stdout is not None and keeper.stdout.readline() == b"joined\n"
        (found,) = waiting(ids)
        assert (found.kernel_id, found.uid, found.gpus) == (ids[0], ME, 1)
        keeper.send_signal(signal.SIGSTOP)
        wait_for(lambda: not waiting(ids), "a stopped keeper to let others go first")
        keeper.send_signal(signal.SIGCONT)
        wait_for(lambda: waiting(ids), "its place")
        keeper.kill()
        keeper.wait()
    assert waiting(ids) == []


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"x",
        b"00000000001.0.1.0.1",
        b"00000000001.0.0.0.1.ID",
        b"00000000001.0.100.0.1.ID",
        b"00000000001.0.1.100.1.ID",
        b"00000000001.0.1.0.1.../ID",
        b"00000000001.0.1.0.1.ID\n",
        b"0000000000g.0.1.0.1.ID",
        b"00000000001.1000000.1.0.1.ID",
        b"\xff" * 70,
        b"00000000001.0.1.0.1.\xff",
        b"00000000001.0.1.0.1.ID\0",
    ],
)
def test_names_that_no_keeper_announces(
    name: bytes, queues: List[WaitQueue], ids: List[str], gpus: List[str]
) -> None:
    """Any user can bind them."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(b"\0" + PREFIX.encode() + name.replace(b"ID", ids[0].encode()))
        listener.listen()
        wait(queues[1], gpus)
        assert [one.kernel_id for one in waiting(ids)] == ids[1:2] and ahead(queues[1], ids) == []


def test_more_names_than_descriptors(queues: List[WaitQueue], ids: List[str], gpus: List[str]) -> None:
    wait(queues[0], gpus)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        for number in range(200):
            listener = announcements.bind(RUNTIME, f"{PREFIX}00000000001.0.1.0.1.{ids[1]}-{number}")
            assert listener is not None
            stack.enter_context(listener)
        used = max(map(int, os.listdir("/proc/self/fd"))) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 70, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        assert len([one for one in QueueReader(RUNTIME).read() if one.kernel_id.startswith(ids[1])]) == 200
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
        assert queues[0].look() == []
        wait(queues[2], gpus)  # it cannot be announced


def test_a_time_that_cannot_be_true_is_no_advantage(
    queues: List[WaitQueue], ids: List[str], gpus: List[str]
) -> None:
    wait(queues[1], gpus)
    liar = announcements.bind(RUNTIME, f"{PREFIX}00000000001.0.1.0.ffffffffffffffff.{ids[0]}")
    assert liar is not None
    with liar:
        assert [one.since for one in waiting(ids)] == [math.inf, waiting(ids)[1].since]
        assert ahead(queues[1], ids) == []


def test_a_place_that_cannot_be_announced(queues: List[WaitQueue], ids: List[str], gpus: List[str]) -> None:
    """Another process has the name: the kernel waits, and does not hold up those that come later."""

    class Stopped(AgentRuntime):
        def time(self) -> float:
            return now

    now = RUNTIME.time()
    name = "%011x.0.1.0.%x.%s" % (round(round(now, 3) * 1000), gpu_bits(gpus), ids[0])
    taken = announcements.bind(RUNTIME, PREFIX + name)
    assert taken is not None
    with taken:
        wait(WaitQueue(Loop(Stopped()), ids[0]), gpus)
    wait(queues[1], gpus)
    assert ahead(queues[1], ids) == []


def test_the_longest_name_can_be_bound(gpus: List[str]) -> None:
    queue = WaitQueue(Loop(RUNTIME), "k" * 64, priority=-99)
    queue.join(64)
    queue.announce([f"GPU-{number}" for number in range(400)])
    assert [one.gpus for one in QueueReader(RUNTIME).read() if one.kernel_id == "k" * 40] == [64]
    queue.leave()
