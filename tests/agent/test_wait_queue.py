"""The queue of kernels that wait, over real sockets, whose names every process of the node can read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from typing import Iterator, List

import pytest
from runtimes import RUNTIME
from streams import wait_for

from jupyter_gpu_kernel.agent.gpus import announcements
from jupyter_gpu_kernel.agent.gpus.announcements import AnnouncementReader
from jupyter_gpu_kernel.agent.gpus.lease import Holder
from jupyter_gpu_kernel.agent.gpus.turns import Waiting
from jupyter_gpu_kernel.agent.gpus.wait_queue import WaitQueue, held_by_user, read_waiting
from jupyter_gpu_kernel.agent.loop import Loop
from jupyter_gpu_kernel.wire.runtime import Runtime

PREFIX = "jupyter-gpu-kernel/wait/"
ME = os.getuid()


@pytest.fixture
def ids() -> List[str]:
    """Three kernel ids that no other test run has."""
    return [f"{letter}{uuid.uuid4().hex[:12]}" for letter in "abc"]


@pytest.fixture
def queues(ids: List[str]) -> Iterator[List[WaitQueue]]:
    made = [WaitQueue(Loop(RUNTIME), kernel_id) for kernel_id in ids]
    yield made
    for queue in made:
        queue.leave()


def waiting(ids: List[str]) -> List[Waiting]:
    """Those of these kernels that wait, by id."""
    found = read_waiting(AnnouncementReader(RUNTIME, PREFIX), RUNTIME.time())
    return sorted(one for one in found if one.kernel_id in ids)


def ahead(queue: WaitQueue, ids: List[str]) -> List[str]:
    return [one.kernel_id for one in queue.before({}) if one.kernel_id in ids]


def test_first_come_first_served(queues: List[WaitQueue], ids: List[str]) -> None:
    for queue in queues:
        queue.join(1)
    assert [ahead(queue, ids) for queue in queues] == [[], ids[:1], ids[:2]]
    queues[0].join(1)
    assert ahead(queues[0], ids) == [], "who asks again keeps the place"
    queues[0].leave()
    queues[0].join(1)
    assert ahead(queues[0], ids) == ids[1:], "who comes again is the last"
    assert [one.gpus for one in waiting(ids)] == [1, 1, 1]


def test_a_priority_can_be_changed_while_the_kernel_waits(queues: List[WaitQueue], ids: List[str]) -> None:
    for queue in queues:
        queue.join(2)
    queues[2].set_priority(7)
    assert [ahead(queue, ids) for queue in queues] == [ids[2:], [ids[2], ids[0]], []]
    assert [one.priority for one in waiting(ids)] == [0, 0, 7]
    queues[2].set_priority(0)
    assert ahead(queues[2], ids) == ids[:2], "the place by time is kept"


def test_what_a_kernel_can_use_is_known_to_the_others(queues: List[WaitQueue], ids: List[str]) -> None:
    queues[0].set_usable([1, 3])
    queues[0].join(1)
    queues[1].join(1)
    (first,) = [one for one in queues[1].before({}) if one.kernel_id == ids[0]]
    assert [first.can_use(index) for index in range(5)] == [False, True, False, True, False]
    queues[0].set_usable(range(80))
    assert waiting(ids)[0].can_use(63)


def test_users_with_fewer_gpus_come_first(queues: List[WaitQueue], ids: List[str]) -> None:
    holder = Holder("me", 1, "x", None, uid=ME, yours=True)
    leases = {"GPU-1": holder, "GPU-2": holder, "GPU-3": holder._replace(uid=-1)}
    assert held_by_user(leases) == {ME: 2, -1: 1}
    queues[0].join(1)
    assert [one for one in queues[0].before(leases) if one.kernel_id in ids] == []


def test_the_death_of_a_keeper_frees_its_place(ids: List[str]) -> None:
    code = (
        "import sys; from jupyter_gpu_kernel.agent.gpus.wait_queue import WaitQueue\n"
        "from jupyter_gpu_kernel.agent.loop import Loop\nfrom jupyter_gpu_kernel.wire.runtime import Runtime\n"
        f"queue = WaitQueue(Loop(Runtime()), {ids[0]!r}); queue.join(1); print('joined', flush=True); sys.stdin.read()"
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
        "",
        "x",
        "00000000001.1.0.0",
        "00000000001.0.0.0.{id}",
        "00000000001.100.0.0.{id}",
        "00000000001.1.100.0.{id}",
        "00000000001.1.0.0.../{id}",
        "00000000001.1.0.0.{id}\n",
        "0000000000g.1.0.0.{id}",
    ],
)
def test_names_that_no_keeper_announces(name: str, ids: List[str]) -> None:
    before = len(read_waiting(AnnouncementReader(RUNTIME, PREFIX), RUNTIME.time()))
    listener = announcements.bind(PREFIX + name.format(id=ids[0]))
    assert listener is not None
    with listener:
        assert len(read_waiting(AnnouncementReader(RUNTIME, PREFIX), RUNTIME.time())) <= before
        assert waiting(ids) == []


def test_a_time_that_cannot_be_true_is_no_advantage(queues: List[WaitQueue], ids: List[str]) -> None:
    queues[1].join(1)
    liar = announcements.bind(f"{PREFIX}00000000001.9.0.0.{ids[0]}")
    assert liar is not None
    with liar:
        assert ahead(queues[1], ids) == []


def test_a_place_that_cannot_be_announced(queues: List[WaitQueue], ids: List[str]) -> None:
    """Another process has the name: the kernel waits without a place, and does not hold up those that come later."""

    class Stopped(Runtime):
        def time(self) -> float:
            return now

    now = RUNTIME.time()
    name = "%011x.1.0.0.%s" % (round(round(now, 3) * 1000), ids[0])
    taken = announcements.bind(PREFIX + name)
    assert taken is not None
    queue = WaitQueue(Loop(Stopped()), ids[0])
    with taken:
        queue.join(1)
        assert queue.before({}) == []
    queues[1].join(1)
    assert ahead(queues[1], ids) == []
