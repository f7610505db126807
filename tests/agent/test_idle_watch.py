"""Processes without a lease that do no work for long, as several samples show."""

from __future__ import annotations

from typing import Any, Dict, Optional

import pytest

from jupyter_gpu_kernel.agent.gpus.devices.gpu import Gpu, GpuProcess
from jupyter_gpu_kernel.agent.gpus.idle_watch import IdleWatch

BOB = GpuProcess(1234, "bob", 12186, "python", 5.0, 41.0)
IDLE = Gpu(0, "GPU-1", "A100", 81920, 12187, 600, 0, "Default", "Disabled", processes=(BOB,))


def used(percent: Optional[int] = 0, **facts: Any) -> Gpu:
    return Gpu(
        0, "GPU-1", "A100", 81920, 9, 600, percent, "Default", "Disabled", processes=(BOB._replace(**facts),)
    )


def seen(second: Gpu) -> Dict[str, float]:
    """What is known after an hour of `second`, half an hour after a first sample."""
    watch = IdleWatch()
    assert watch.add(10000, [IDLE]) == {}
    watch.add(11800, [second])
    return watch.add(13600, [second])


@pytest.mark.parametrize(
    ("second", "since"),
    [
        (used(), 10000),
        (used(None), 10000),
        (used(cpu_seconds=50.0), 10000),
        (used(cpu_seconds=60.0), 11800),
        (used(since=5.4), 10000),
        (used(since=7.0), 11800),
        (used(pid=77), 11800),
        (used(3), None),
        (used(cpu_seconds=None), None),
    ],
)
def test_since_when(second: Gpu, since: Optional[float]) -> None:
    assert seen(second) == ({} if since is None else {"GPU-1": since})


def test_not_before_ten_minutes_and_not_without_processes() -> None:
    watch = IdleWatch()
    watch.add(0, [IDLE])
    assert watch.add(599, [IDLE]) == {} and watch.add(600, [IDLE]) == {"GPU-1": 0}
    assert watch.add(601, []) == {} == watch.add(1300, [IDLE]), "forgotten"
