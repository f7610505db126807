"""A kernel that replaces another one: what becomes of the leases that it receives."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List

import pytest
from contexts import NO_CALLBACKS, context
from gpu_names import new_uuid
from leases import passed_leases, take_lease
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.manager import GpuManager
from jupyter_gpu_kernel.agent.keeper.lifetime import Replacement
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.system.loop import Loop

"""When the old kernel got its lease."""


class New:
    """The new kernel, which needs one GPU. `uuid` is the one that the old kernel has."""

    def __init__(self, folder: Path) -> None:
        self.uuid = new_uuid()
        self._loop = Loop(RUNTIME)
        self._root = Root(folder)
        self._root.make_kernel("new")
        self._gpus = self._manager("new")
        self._context = context(self._loop, folder, id="new", gpus=1)
        self.replacement = Replacement(self._context, self._gpus, lambda event: None)

    def _manager(self, kernel_id: str) -> GpuManager:
        kernel = context(self._loop, self._root.path, id=kernel_id, gpus=1)
        return GpuManager(kernel, NO_CALLBACKS)

    def close(self) -> None:
        self.replacement.close()
        self._gpus.release()

    @property
    def gpus(self) -> List[str]:
        return self._gpus.acquisition.uuids

    def receive(self) -> None:
        """Receive the lease of the old kernel."""
        old = self._manager("old")
        assert old.acquisition.receive(passed_leases([self.uuid]))
        assert old.hand_over(self._root.kernel("new"))
        self._loop.later(0, self._loop.stop)
        self._loop.run()

    @property
    def released(self) -> bool:
        """Whether another kernel can have the GPU."""
        lease = take_lease(self.uuid, {"id": "other"})
        if lease is not None:
            lease.release()
        return lease is not None


@pytest.fixture
def new(tmp_path: Path) -> Iterator[New]:
    new = New(tmp_path)
    yield new
    new.close()


def test_a_lease_that_comes_early_is_used_when_the_kernel_is_up(new: New) -> None:
    new.receive()
    assert not new.gpus and not new.released
    new.replacement.kernel_up()
    assert new.gpus == [new.uuid] and not new.released


def test_a_lease_that_comes_during_a_restart_is_used_when_the_kernel_is_up_again(new: New) -> None:
    new.replacement.kernel_up()
    new.replacement.kernel_starting()
    new.receive()
    assert not new.gpus and not new.released
    new.replacement.kernel_up()
    assert new.gpus == [new.uuid]


def test_a_lease_that_comes_after_the_kernels_end_is_released(new: New) -> None:
    new.replacement.kernel_up()
    new.replacement.kernel_ended()
    new.receive()
    assert not new.gpus and new.released


def test_a_lease_that_waited_for_a_kernel_that_never_came_up_is_released(new: New) -> None:
    new.receive()
    new.replacement.kernel_ended()
    assert not new.gpus and new.released


def test_who_waits_for_the_next_kernel_waits_less_for_the_end_of_this_one(new: New) -> None:
    ends = new.replacement.grace(restart=False), new.replacement.grace(restart=True)
    new.replacement.replaced_by = "newer"
    assert ends[0] > ends[1] > new.replacement.grace(restart=True) == new.replacement.grace(restart=False)
