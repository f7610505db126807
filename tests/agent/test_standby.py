"""A kernel on standby: what the hub's renewals, silence and confirmation do."""

from __future__ import annotations

from typing import List

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus import gate as module
from jupyter_gpu_kernel.agent.gpus.gate import GpuStandby
from jupyter_gpu_kernel.agent.loop import Loop


def test_a_wait_that_nobody_renews_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAPSES_AFTER", 0.05)
    loop, ended = Loop(RUNTIME), list[str]()

    def lapse(why: str) -> None:
        ended.append(why)
        loop.stop()

    standby = GpuStandby(loop, "now", lapse)
    standby.renew()  # it does not wait yet
    standby.begin()
    loop.run()
    assert ended == ["its hub has not renewed the wait for GPUs on several hosts"]


@pytest.mark.parametrize("end", ["confirm", "end"])
def test_a_kernel_that_does_not_wait_needs_no_renewal(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(module, "LAPSES_AFTER", 0.01)
    loop = Loop(RUNTIME)
    ended: List[str] = []
    standby = GpuStandby(loop, "cell", ended.append)
    standby.begin()
    getattr(standby, end)()
    standby.renew()
    loop.later(0.05, loop.stop)
    loop.run()
    assert not ended and standby.active == (end == "end")
    assert GpuStandby(loop, "", ended.append).status("") == {}


def test_a_renewal_begins_the_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAPSES_AFTER", 0.1)
    loop = Loop(RUNTIME)
    ended: List[str] = []
    standby = GpuStandby(loop, "cell", ended.append)
    standby.begin()
    loop.later(0.06, standby.renew)
    loop.later(0.12, loop.stop)
    loop.run()
    assert not ended
