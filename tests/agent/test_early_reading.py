"""The first reading of the GPUs, from `attach` to the keeper."""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.devices.gpu_reader import gpu_reader
from jupyter_gpu_kernel.agent.gpus.early_reading import EarlyReading, EarlyReadings, Reading
from jupyter_gpu_kernel.agent.gpus.sampler import SampleReader
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.system.process_control import ProcessControl

PROGRAMS = Path(__file__).parents[1] / "programs"
PROCESSES = ProcessControl()


class Smi:
    """A practice nvidia-smi, and how often it was called."""

    def __init__(self, folder: Path) -> None:
        self.state, self._log = folder / "state", folder / "log"
        self.show()

    def show(self, **words: Any) -> None:
        used = {"processes": [{"pid": os.getpid(), "memory": 500}]}
        self.state.write_text(json.dumps({"log": str(self._log), "gpus": [{}, used], **words}))

    @property
    def calls(self) -> int:
        return len(self._log.read_text().splitlines()) if self._log.exists() else 0


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    folders = [str(PROGRAMS), os.path.dirname(sys.executable), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    monkeypatch.setenv("FAKE_NVIDIA_STATE", str(tmp_path / "state"))
    return Smi(tmp_path)


def passed(settings: Dict[str, Any]) -> List[int]:
    """The descriptors that the keeper gets."""
    with EarlyReadings(RUNTIME, PROCESSES).begin(KernelSettings.from_json(settings)) as early:
        return [os.dup(one) for one in early]


def test_the_keeper_takes_the_reading_that_attach_has_begun(smi: Smi) -> None:
    began = RUNTIME.monotonic()
    (early,) = passed({"gpus": 1})
    reader = SampleReader(RUNTIME, PROCESSES, early=early)
    sample = reader.read()
    now, calls = RUNTIME.monotonic(), smi.calls
    assert began <= sample.time <= now
    expected = gpu_reader(RUNTIME, PROCESSES).read()
    assert [gpu.uuid for gpu in sample.gpus] == [gpu.uuid for gpu in expected]
    assert sample.gpus[0] == expected[0] and sample.gpus[1].processes[0].pid == os.getpid()
    assert smi.calls == 2 * calls, "the keeper has called nvidia-smi for no first reading of its own"
    assert reader.read().time > now, "the second one is its own"


def test_a_field_that_the_driver_lacks_is_tried_once(smi: Smi) -> None:
    smi.show(missing=["gpu_recovery_action", "memory.reserved"])
    reader = SampleReader(RUNTIME, PROCESSES)
    assert len(reader.read().gpus) == 2
    tried = smi.calls
    reader.read()
    assert smi.calls - tried == 2 < tried


def test_where_the_reading_fails_the_keeper_reads_and_finds_out_why(smi: Smi) -> None:
    smi.show(mode="nocomm")
    (early,) = passed({})
    reading = EarlyReading(RUNTIME, early)
    assert reading.take(threading.Event()) is None and reading.take(threading.Event()) is None
    (early,) = passed({})
    reader = SampleReader(RUNTIME, PROCESSES, early=early)
    smi.show()
    assert len(reader.read().gpus) == 2


@pytest.mark.parametrize("settings", [{"gpus": 0}, {"job": "7"}, {"setup": ["module load cuda"]}])
def test_a_keeper_that_reads_no_gpus_or_elsewhere_gets_none(smi: Smi, settings: Dict[str, Any]) -> None:
    assert passed(settings) == [] and not smi.calls


def test_a_keeper_in_an_allocation_gets_none(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert passed({"gpus": 1}) == []


def taken(data: bytes) -> Optional[Reading]:
    """What the keeper takes of these bytes. The pipe is closed then."""
    read_fd, write_fd = os.pipe()
    os.write(write_fd, data)
    os.close(write_fd)
    reading = EarlyReading(RUNTIME, read_fd).take(threading.Event())
    with pytest.raises(OSError):
        os.fstat(read_fd)
    return reading


READING = pickle.dumps(Reading(1.0, []))


@pytest.mark.parametrize("data", [b"", READING[:-1], READING[:5]])
def test_a_part_of_a_reading_is_none(data: bytes) -> None:
    assert taken(data) is None


def test_a_reading_that_is_too_large_is_none() -> None:
    """It must fit into a pipe: neither end waits for the other."""
    assert taken(READING.ljust(60_000)) == Reading(1.0, [])
    assert taken(READING.ljust(60_001)) is None and taken(READING.ljust(65_536)) is None


def test_attach_writes_no_reading_that_a_pipe_does_not_hold(smi: Smi) -> None:
    """As of a node on which thousands of processes use a GPU."""
    processes = [{"pid": os.getpid(), "memory": 1}] * 2000
    smi.show(gpus=[{"processes": processes}])
    (early,) = passed({"gpus": 1})
    with os.fdopen(early, "rb") as pipe:
        assert pipe.read() == b""


def test_a_reading_that_does_not_come_ends_with_the_keeper() -> None:
    read_fd, write_fd = os.pipe()
    stop = threading.Event()
    stop.set()
    assert EarlyReading(RUNTIME, read_fd).take(stop) is None
    os.close(write_fd)
