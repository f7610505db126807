"""A cell that waits for GPUs, and a driver that fails now and then."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import threading
import uuid
from pathlib import Path
from typing import Dict, Iterator, List

import pytest
from contexts import context
from gpu_names import new_uuid
from leases import passed_leases, read_leases, take_lease
from runtimes import RUNTIME, ManualLoop
from waiting import DEADLINE

from jupyter_gpu_kernel.agent.gpus.acquisition import (
    RETRIES,
    RETRY_AFTER,
    Acquisition,
    AcquisitionCallbacks,
)
from jupyter_gpu_kernel.agent.gpus.devices.gpu import Gpu, SmiError
from jupyter_gpu_kernel.agent.gpus.devices.smi_runner import TIMEOUT
from jupyter_gpu_kernel.agent.gpus.judge import DEFAULT_CRITERIA
from jupyter_gpu_kernel.agent.gpus.sampler import Sample
from jupyter_gpu_kernel.agent.gpus.sharing import announcements
from jupyter_gpu_kernel.agent.gpus.sharing.lease import Holder, release_all
from jupyter_gpu_kernel.agent.gpus.sharing.turns import UNTAKEN_FOR
from jupyter_gpu_kernel.agent.kernel_context import KernelContext
from jupyter_gpu_kernel.agent.system import procfs

PROGRAMS = Path(__file__).parents[1] / "programs"
HANG = SmiError("hang", "nvidia-smi does not answer")
SILENT = AcquisitionCallbacks(lambda: None, lambda text: None, lambda text: None)


def fake_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi that waits: the test delivers the samples."""
    state = tmp_path / "state"
    state.write_text(json.dumps({"mode": "wait"}))
    folders = [str(PROGRAMS), os.path.dirname(sys.executable), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    monkeypatch.setenv("FAKE_NVIDIA_STATE", str(state))


def test_a_lease_answers_before_the_claim_is_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may take it for the lease of a process that does not answer, however long nvidia-smi takes."""
    fake_smi(tmp_path, monkeypatch)
    loop, kernel = ManualLoop(), uuid.uuid4().hex[:12]
    texts: List[str] = []
    waiting = Acquisition(
        context(loop, tmp_path, id=kernel, gpus=1), lambda: {"state": "starting"},
        AcquisitionCallbacks(lambda: texts.append("acquired"), texts.append, texts.append),
    )  # fmt: skip
    gpu = Gpu(0, new_uuid(), "A100", 40960, 1, utilization=0)
    waiting.request()
    found: Dict[str, Holder] = {}
    reader = threading.Thread(target=lambda: found.update(read_leases([gpu.uuid], timeout=DEADLINE)))
    try:
        for _ in range(DEFAULT_CRITERIA.samples):
            waiting._sampled(Sample(loop.clock.monotonic(), [gpu], {}))
        assert texts[-1].startswith("Checking once more")
        reader.start()
        while reader.is_alive():
            loop.advance()
            reader.join(0.01)
        assert found[gpu.uuid].answers and found[gpu.uuid].id == kernel
    finally:
        waiting.release()
    assert not read_leases([gpu.uuid]) and "acquired" not in texts


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Acquisition]:
    """One that needs a GPU; nothing samples any."""
    acquisition = Acquisition(context(ManualLoop(), tmp_path, id=uuid.uuid4().hex[:12], gpus=1), dict, SILENT)
    yield acquisition
    acquisition.release()


def test_a_killed_keeper_leaves_its_leases_to_its_successor(tmp_path: Path) -> None:
    """As long as its kernel has the socket with the leases, nobody else gets them; a release needs no kernel."""
    kernel, uuid = context(ManualLoop(), tmp_path, id="k1", gpus=2), [new_uuid() for _ in range(2)]

    def keeper() -> Acquisition:
        return Acquisition(kernel, dict, SILENT)

    killed = keeper()
    assert killed.receive(passed_leases(uuid))
    release_all(killed._leases)  # as the system does
    assert [take_lease(one, {"id": "other"}) for one in uuid] == [None, None]
    for _ in range(2):  # the first one is killed, too
        successor = keeper()
        successor.inherit()
        assert successor.acquired and successor.uuids == uuid
        assert {holder.id for holder in read_leases(uuid, timeout=0.0).values()} <= {"k1", "?"}
        release_all(successor._leases)
    assert len(read_leases(uuid, timeout=0.0)) == 2
    successor.release()
    assert not read_leases(uuid)
    later = keeper()
    later.inherit()
    assert not later.acquired


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    killed = Killed(tmp_path)
    yield killed
    killed.successor.release()


class Killed:
    """A kernel with two GPUs, `uuids`, whose keeper was killed, and its successor. `queue` keeps the leases."""

    def __init__(self, folder: Path) -> None:
        self.uuids = [new_uuid(), new_uuid()]
        context = self._context(folder)
        keeper = Acquisition(context, dict, SILENT)
        assert keeper.receive(passed_leases(self.uuids))
        release_all(keeper._leases)
        self.queue = context.lease_queue
        self.successor = Acquisition(context, dict, SILENT)

    @staticmethod
    def _context(folder: Path) -> KernelContext:
        return context(ManualLoop(), folder, id="k1", gpus=2)


def test_leases_for_which_descriptors_are_missing_are_released(killed: Killed) -> None:
    """Else nobody could ever have these GPUs, not even their kernel."""
    lowest = os.dup(0)
    os.close(lowest)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, before[1]))
    try:
        killed.successor.inherit()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not killed.successor.acquired and not killed.successor.uuids
    assert not read_leases(killed.uuids, timeout=0.0)


def test_leases_that_the_system_does_not_keep_are_an_error_of_the_cell(kernel: Acquisition) -> None:
    """No kernel may have a GPU that another one can get when its keeper is killed."""
    kernel._transfer.queue.shutdown(socket.SHUT_RDWR)
    uuid = new_uuid()
    assert not kernel.receive(passed_leases([uuid]))
    assert not kernel.acquired and not read_leases([uuid])


def test_leases_that_are_passed_on_and_not_needed_are_released(kernel: Acquisition) -> None:
    uuids = [new_uuid() for _ in range(2)]
    assert kernel.receive(passed_leases(uuids))
    assert kernel.uuids == uuids[:1] == list(read_leases(uuids, timeout=0.0))


def test_a_lease_that_the_system_refuses_is_an_error_of_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper goes on."""
    fake_smi(tmp_path, monkeypatch)
    loop = ManualLoop()
    errors: List[str] = []
    waiting = Acquisition(
        context(loop, tmp_path, id=uuid.uuid4().hex[:12], gpus=1), dict,
        AcquisitionCallbacks(lambda: errors.append("acquired"), errors.append, lambda text: None),
    )  # fmt: skip
    gpu = Gpu(0, f"GPU-{'0' * 200}", "A100", 40960, 1, utilization=0)
    waiting.request()
    for _ in range(DEFAULT_CRITERIA.samples):
        waiting._sampled(Sample(loop.clock.monotonic(), [gpu], {}))
    waiting.release()
    assert [error.split(":")[0] for error in errors] == ["the GPUs cannot be leased"]


def test_only_failures_in_a_row_end_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell may wait for days: three short faults in that time are none, nor is one that lasts a minute."""
    fake_smi(tmp_path, monkeypatch)
    loop = ManualLoop()
    errors: List[str] = []
    texts: List[str] = []
    waiting = Acquisition(
        context(loop, tmp_path, id=uuid.uuid4().hex[:12], gpus=1), dict,
        AcquisitionCallbacks(lambda: errors.append("acquired"), errors.append, texts.append),
    )  # fmt: skip
    busy = Gpu(0, new_uuid(), "A100", 40960, 30000, utilization=90)
    waiting.request()
    try:
        for _ in range(4):
            for _ in range(RETRIES[HANG.code]):
                waiting._failed(HANG)
            assert texts[-1] == str(HANG)
            waiting._sampled(Sample(loop.clock.monotonic(), [busy], {}))
            assert "29.3 GiB are used by no visible process" in texts[-1]
        assert not errors
        for _ in range(RETRIES[HANG.code] + 1):
            waiting._failed(HANG)
        assert errors == [str(HANG)]
    finally:
        waiting.release()
    assert RETRIES[HANG.code] * (TIMEOUT + RETRY_AFTER) - TIMEOUT >= 60, "the last call begins after a minute"


@pytest.mark.parametrize(("gpus", "patience"), [(99, 0.0), (1, UNTAKEN_FOR)])
def test_a_place_that_nobody_takes_does_not_hold_the_queue_for_ever(
    gpus: int, patience: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever announces it: any user can, and the keeper that does may hang."""
    fake_smi(tmp_path, monkeypatch)
    loop = ManualLoop()
    texts: List[str] = []
    loop.clock.seconds = began = RUNTIME.time()  # so that the place's time is plausible
    waiting = Acquisition(
        context(loop, tmp_path, id=uuid.uuid4().hex[:12], gpus=1), dict,
        AcquisitionCallbacks(lambda: texts.append("acquired"), texts.append, texts.append),
    )  # fmt: skip
    name = f"{round(began * 1000):011x}.0.{gpus}.99.ffffffffffffffff.{uuid.uuid4().hex[:12]}"
    place = announcements.bind(RUNTIME, "jupyter-gpu-kernel/wait/" + name)
    assert place is not None
    with place:
        gpu = Gpu(0, new_uuid(), "A100", 40960, 1, utilization=0)
        waiting.request()
        while not texts or not texts[-1].startswith("Checking once more"):
            assert loop.clock.seconds <= began + patience + 5, texts
            waiting._sampled(Sample(loop.clock.monotonic(), [gpu], {}))
            loop.clock.seconds += 2
        assert loop.clock.seconds >= began + patience
    waiting.release()


def test_a_kernel_behind_others_does_not_look_all_the_time_after_a_lease_was_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked again at once, without an end, until its samples were old enough for a new one."""
    fake_smi(tmp_path, monkeypatch)
    loop = ManualLoop()
    loop.clock.seconds = began = RUNTIME.time()
    waiting = Acquisition(
        context(loop, tmp_path, id=uuid.uuid4().hex[:12], gpus=1), dict,
        SILENT,
    )  # fmt: skip
    name = f"{round(began * 1000):011x}.0.1.99.ffffffffffffffff.{uuid.uuid4().hex[:12]}"
    place = announcements.bind(RUNTIME, "jupyter-gpu-kernel/wait/" + name)
    assert place is not None
    with place:
        busy = Gpu(0, new_uuid(), "A100", 40960, 30000, utilization=90)
        procfs.user_name(os.getuid())  # as a sample does
        waiting.request()
        for leases in ({busy.uuid: Holder("bob", 0, "k", None)}, {}, {}):
            waiting._sampled(Sample(loop.clock.monotonic(), [busy], leases))
            loop.clock.seconds += 1.0
        waiting._sample()
        assert waiting._timer is not None and waiting._timer.due >= loop.time() + 1.0
    waiting.release()
