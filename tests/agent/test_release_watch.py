"""A release of a lease is noticed, whoever had it. Other tests on this machine may release leases meanwhile."""

from __future__ import annotations

from typing import List

from gpu_names import new_uuid
from leases import take_lease
from runtimes import ManualLoop

from jupyter_gpu_kernel.agent.gpus.sharing.release_watch import INTERVAL, ReleaseWatch


class SlowLoop(ManualLoop):
    """Whatever is done between two looks at the clock takes a second."""

    def time(self) -> float:
        self.clock.seconds += 1
        return super().time()


def test_a_node_with_very_many_sockets_is_looked_at_rarely() -> None:
    loop = SlowLoop()
    watch = ReleaseWatch(loop, lambda: None)
    watch._look()
    assert watch._timer is not None and watch._timer.due - loop.time() >= 25
    watch.stop()


def test_a_release_is_noticed_until_the_watch_stops() -> None:
    loop = ManualLoop()
    noticed: List[int] = []
    watch = ReleaseWatch(loop, lambda: noticed.append(1))
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
