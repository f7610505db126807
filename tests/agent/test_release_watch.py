"""A release of a lease is noticed, whoever had it. Other tests on this machine may release leases meanwhile."""

from __future__ import annotations

import subprocess
import sys
from queue import Queue
from typing import List

from gpu_names import new_uuid
from leases import take_lease
from runtimes import RUNTIME, ManualLoop

from jupyter_gpu_kernel.agent.gpus.sharing import announcements
from jupyter_gpu_kernel.agent.gpus.sharing.release_watch import INTERVAL, ReleaseWatch


class SlowLoop(ManualLoop):
    """Whatever is done between two looks at the clock takes a second."""

    def time(self) -> float:
        self.clock.seconds += 1
        return super().time()


def test_a_node_with_very_many_sockets_is_looked_at_rarely() -> None:
    loop = SlowLoop()
    watch = ReleaseWatch(loop, lambda released: None)
    watch._look()
    assert watch._timer is not None and watch._timer.due - loop.time() >= 25
    watch.stop()


def test_a_release_is_noticed_until_the_watch_stops() -> None:
    loop = ManualLoop()
    noticed: List[int] = []
    watch = ReleaseWatch(loop, lambda released: noticed.append(1) if released else None)
    watch.stop()
    first, second = (take_lease(new_uuid(), {}) for _ in range(2))
    assert first is not None and second is not None
    watch.start()
    loop.advance(INTERVAL)
    seen = len(noticed)
    first.release()
    loop.advance(INTERVAL)
    assert len(noticed) == seen + 1
    watch.stop()
    second.release()
    loop.advance(INTERVAL)
    assert len(noticed) == seen + 1


def test_the_end_of_a_process_that_used_a_gpu_is_noticed() -> None:
    loop = ManualLoop()
    noticed: Queue[bool] = Queue()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        watch = ReleaseWatch(loop, noticed.put, lambda: [process.pid, 2**22 + 1, 0])
        watch.start()
        loop.advance(INTERVAL)
        assert noticed.empty()
        process.communicate(b"\n")
        loop.advance(INTERVAL)
        assert noticed.get_nowait()
    watch.stop()


def test_a_change_of_the_queue_is_noticed() -> None:
    loop = ManualLoop()
    noticed: Queue[bool] = Queue()
    watch = ReleaseWatch(loop, noticed.put)
    watch.start()
    place = announcements.bind(RUNTIME, f"jupyter-gpu-kernel/wait/00000000001.0.1.0.1.{new_uuid()}")
    assert place is not None
    for _ in range(2):
        loop.advance(INTERVAL)
        assert not noticed.get_nowait()
        place.close()
    watch.stop()
