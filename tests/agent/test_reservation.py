"""A keeper that only waits for GPUs on one of several hosts: when it ends by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import List, Tuple

import pytest
from runtimes import ManualLoop

from jupyter_gpu_kernel.agent.keeper.limits.housekeeping import LAPSES_AFTER, Housekeeping
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings


def housekeeping(reservation: bool) -> Tuple[Housekeeping, SimpleNamespace, ManualLoop, List[str]]:
    """The housekeeping of a keeper, its settings, its loop, and why it was stopped."""
    loop, stopped = ManualLoop(), list[str]()
    settings = SimpleNamespace(now=KernelSettings(reservation=reservation))
    keeper = SimpleNamespace(loop=loop, settings=settings, stop=stopped.append)
    return Housekeeping(keeper), settings, loop, stopped  # type: ignore[arg-type]


def test_a_reservation_ends_when_its_hub_does_not_come_back() -> None:
    kept, _, loop, stopped = housekeeping(reservation=True)
    kept.detached()
    loop.advance(LAPSES_AFTER - 1)
    kept.attached()
    loop.advance(10 * LAPSES_AFTER)
    assert not stopped, "its hub is there"
    kept.detached()
    loop.advance(LAPSES_AFTER - 1)
    assert not stopped
    loop.advance(1)
    assert len(stopped) == 1 and "only a reservation of GPUs" in stopped[0]


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_kernel_does_not_end_with_its_hub(confirmed: bool) -> None:
    """It was never a reservation, or is none any more."""
    kept, settings, loop, stopped = housekeeping(reservation=confirmed)
    kept.detached()
    settings.now = settings.now.replace(reservation=False)
    loop.advance(10 * LAPSES_AFTER)
    assert not stopped
