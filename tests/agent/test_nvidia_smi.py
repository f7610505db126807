"""Reading nvidia-smi: an executable of that name on PATH says what a file says."""

from __future__ import annotations

import getpass
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from runtimes import RUNTIME, Clock
from waiting import eventually

from jupyter_gpu_kernel.agent.gpus.devices.gpu import SmiError
from jupyter_gpu_kernel.agent.gpus.devices.nvidia_csv import FIELDS, OPTIONAL, parse
from jupyter_gpu_kernel.agent.gpus.devices.nvidia_smi import NvidiaSmi
from jupyter_gpu_kernel.agent.gpus.devices.smi_runner import MAX_OUTPUT
from jupyter_gpu_kernel.agent.gpus.sampler import Sampler
from jupyter_gpu_kernel.agent.system.agent_runtime import TimeoutExpired
from jupyter_gpu_kernel.agent.system.loop import Loop

PROGRAMS = Path(__file__).parents[1] / "programs"
UUID = "GPU-00000000-0000-0000-0000-%012d"
State = Callable[..., None]
FIELDS_OF_ALL = [field for field in FIELDS if field not in OPTIONAL]
"""The fields that every driver knows."""


def smi() -> NvidiaSmi:
    return NvidiaSmi(RUNTIME)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """A node with the practice nvidia-smi; `state(gpus=[…])` says what it answers from now on."""
    path = tmp_path / "state.json"
    folders = [str(PROGRAMS), os.path.dirname(sys.executable), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    monkeypatch.setenv("FAKE_NVIDIA_STATE", str(path))

    def report(**words: Any) -> None:
        fresh = tmp_path / "state.new"
        fresh.write_text(json.dumps(dict(words, log=str(tmp_path / "calls"))))
        fresh.replace(path)

    return report


def calls(tmp_path: Path) -> List[Any]:
    return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_reads_links_between_gpus(state: State) -> None:
    matrix = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"
    state(gpus=[{}, {}], topology=matrix)
    smi = NvidiaSmi(RUNTIME)
    assert set(smi.read_links()) == {(0, 1), (1, 0)}
    state(gpus=[{}, {}])
    assert smi.read_links() == {}, "an old driver, or one GPU"
    assert len(smi.read()) == 2


def test_reads_mig_devices(state: State) -> None:
    devices = [
        {"uuid": "MIG-a", "profile": "3g.20gb", "processes": [{"pid": os.getpid(), "memory": 500}]},
        {"uuid": "MIG-b", "profile": "1g.5gb"},
    ]
    state(gpus=[{"mig": "Enabled", "devices": devices}, {}])
    parted, first, second, whole = NvidiaSmi(RUNTIME).read()
    assert (parted.mig_mode, parted.parent, whole.parent) == ("Enabled", "", "")
    assert [(one.uuid, one.index, one.parent) for one in (first, second)] == [
        ("MIG-a", 0, parted.uuid),
        ("MIG-b", 0, parted.uuid),
    ]
    assert str(second) == "GPU 0 (NVIDIA A100-SXM4-80GB, MIG 1g.5gb, device 1)"
    assert (second.memory_total_mib, second.memory_used_mib, second.utilization) == (20096, 37, None)
    (process,) = first.processes
    assert (process.pid, process.user, process.memory_mib) == (os.getpid(), getpass.getuser(), 500)
    assert "python" in process.name or "pytest" in process.name


def test_reads_fields_and_owners(state: State) -> None:
    mine = {"pid": os.getpid(), "memory": 500, "name": "/opt/a b/python3.8"}
    gone = {"pid": 2**22 + 1, "memory": "[N/A]", "name": "[Not Found]"}
    state(
        gpus=[{"utilization": 7, "processes": [mine, gone]}, {"mig": "Enabled", "compute_mode": "Prohibited"}]
    )
    first, second = smi().read(30)
    assert (first.index, first.uuid, first.utilization) == (0, UUID % 0, 7)
    assert (first.memory_total_mib, first.memory_used_mib, first.memory_reserved_mib) == (81920, 501, 600)
    assert (second.compute_mode, second.mig_mode, second.processes) == ("Prohibited", "Enabled", ())
    ours, theirs = first.processes
    assert (ours.user, ours.memory_mib, ours.name) == (getpass.getuser(), 500, "python3.8")
    assert (ours.yours, theirs.yours) == (True, False)
    assert ours.since is not None and 0 < time.time() - ours.since < 86400
    assert (theirs.user, theirs.memory_mib, theirs.name, theirs.since) == ("?", None, "?", None)


@pytest.mark.parametrize(
    "word", ["[N/A]", "[Not Supported]", "[Insufficient Permissions]", "ERR!", "12 MiB", ""]
)
def test_unknown_is_none_and_never_zero(state: State, word: str) -> None:
    state(gpus=[{"memory_used": word, "utilization": word, "memory_total": word, "memory_reserved": word}])
    (gpu,) = smi().read(30)
    assert (gpu.memory_used_mib, gpu.utilization, gpu.memory_total_mib, gpu.memory_reserved_mib) == (
        None,
    ) * 4


def test_names_of_others_do_no_harm(state: State) -> None:
    name = "x, 99\n\x1b[31mGPU-evil, 5, y, 1"
    state(gpus=[{"name": "Quadro, big", "processes": [{"pid": 5, "memory": 9, "name": name}]}])
    (gpu,) = smi().read(30)
    assert gpu.name == "Quadro, big"
    assert [process.pid for process in gpu.processes] == [5]
    assert gpu.processes[0].name.isprintable()


def test_a_number_of_thousands_of_digits_is_unknown(state: State) -> None:
    """Python refuses to read it, and the name of a process can look like a row."""
    state(gpus=[{"processes": [{"pid": 7, "memory": 1, "name": f"x\n{UUID % 0}, {'9' * 5000}, x"}]}])
    ((*_, forged),) = [gpu.processes for gpu in smi().read(30)]
    assert (forged.pid, forged.user) == (0, "?")


def test_an_output_without_end_is_not_read_in_part(state: State) -> None:
    """The processes of a GPU may come after those that have filled it."""
    state(gpus=[{"processes": [{"pid": 7, "memory": 1, "name": "x" * MAX_OUTPUT}]}, {}])
    with pytest.raises(SmiError, match="printed more than 4 MiB"):
        smi().read(30)


def test_an_old_driver_lacks_fields(state: State, tmp_path: Path) -> None:
    state(gpus=[{}], missing=["memory.reserved", "mig.mode.current"])
    reader = smi()
    (gpu,) = reader.read(30)
    assert (gpu.memory_reserved_mib, gpu.mig_mode, gpu.memory_used_mib) == (None, None, 1)
    before = len(calls(tmp_path))
    reader.read(30)
    assert len(calls(tmp_path)) == before + 2, "what it lacks is asked once"


def test_a_lost_gpu_does_not_hide_the_others(state: State) -> None:
    process = {"pid": 1, "memory": 5}
    state(gpus=[{}, {"lost": True}, {"processes": [process]}])
    first, lost, third = smi().read(30)
    assert [gpu.problem for gpu in (first, third)] == ["", ""]
    assert lost.index == 1 and "lost" in lost.problem and lost.memory_used_mib is None
    assert [process.pid for process in third.processes] == [1]


def test_all_gpus_lost(state: State) -> None:
    state(gpus=[{"lost": True}])
    with pytest.raises(SmiError, match="lost") as caught:
        smi().read(30)
    assert caught.value.code == "driver"


@pytest.mark.parametrize(
    ("mode", "code", "words"),
    [
        ("mismatch", "driver", "version mismatch"),
        ("nocomm", "driver", "couldn't communicate"),
        ("nodev", "none", "no GPU"),
        ("garbage", "driver", "unexpected output of nvidia-smi: Segmentation fault, nearly"),
    ],
)
def test_a_broken_driver_is_reported(state: State, mode: str, code: str, words: str) -> None:
    state(mode=mode)
    with pytest.raises(SmiError, match=words) as caught:
        smi().read(30)
    assert caught.value.code == code
    assert "--gpus 0" in caught.value.remedy


def test_no_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SmiError, match="nvidia-smi was not found") as caught:
        smi().read(30)
    assert caught.value.code == "absent"
    assert "--gpus 0" in caught.value.remedy


def test_a_program_that_cannot_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/no/such/interpreter\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SmiError, match="cannot be run"):
        smi().read(30)


def test_a_hanging_nvidia_smi_is_killed_and_reported(state: State, tmp_path: Path) -> None:
    state(mode="hang")
    reader = smi()
    while not (tmp_path / "calls").exists():  # on a crowded machine it may take longer to begin
        with pytest.raises(SmiError, match="does not answer") as caught:
            reader.read(0.5)
        assert caught.value.code == "hang"
    assert not any(alive(pid) for pid, _ in calls(tmp_path))
    state(gpus=[{}])
    assert len(reader.read(30)) == 1, "it works again as soon as nvidia-smi does"


class UnkillableProcess:
    """It goes on for ever, whatever it is sent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> None:
        return None

    def wait(self, timeout: float) -> int:
        raise TimeoutExpired("nvidia-smi", timeout)


class Unkillable(Clock):
    """Starts such processes; `signals` has what they are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.started = 0
        self.signals: List[Any] = []

    def start(self, *_: Any, **__: Any) -> Any:
        self.started += 1
        return UnkillableProcess(self.started)

    def signal_group(self, group: int, number: int) -> None:
        self.signals.append((group, number))


def test_no_other_nvidia_smi_is_started_beside_one_that_cannot_be_killed(state: State) -> None:
    machine = Unkillable()
    reader = NvidiaSmi(machine)
    begin = machine.monotonic()
    with pytest.raises(SmiError, match="nvidia-smi does not answer"):
        reader.read(15)
    assert 15 <= machine.monotonic() - begin < 16
    assert (machine.started, machine.signals) == (2, [(1, signal.SIGKILL), (2, signal.SIGKILL)])
    with pytest.raises(SmiError, match=r"an earlier nvidia-smi \(pid 1\) still hangs"):
        reader.read(15)
    assert machine.started == 2


@pytest.mark.parametrize(
    "text",
    ["No devices", "0, GPU-a, 1", "x, GPU-a, 1, 2, 3, Default, A", "0, , 1, 2, 3, Default, A"],
)
def test_only_the_expected_csv_is_read(text: str) -> None:
    with pytest.raises(SmiError, match="unexpected output"):
        parse(text, "", FIELDS_OF_ALL)


def test_processes_that_cannot_be_read_are_not_no_processes() -> None:
    row = "0, GPU-a, 1, 2, 3, Default, A"
    assert parse(row, "", FIELDS_OF_ALL)[0].processes == ()
    with pytest.raises(SmiError, match="unexpected output"):
        parse(row, "Failed to initialize NVML: Unknown Error", FIELDS_OF_ALL)
    assert [process.pid for process in parse(row, "GPU-a, [N/A], x, 5", FIELDS_OF_ALL)[0].processes] == [0]


class Sampling:
    """A sampler and its event loop."""

    def __init__(self) -> None:
        self.results: List[Any] = []
        self.loop = Loop(RUNTIME)
        self.sampler = Sampler(self.loop, self._delivered)

    def _delivered(self, result: Any) -> None:
        self.results.append(result)
        self.loop.stop()

    def wait(self) -> Any:
        """The next sample or error. Timers run meanwhile."""
        self.loop.run()
        return self.results.pop(0)


def test_the_sampler_never_blocks(state: State, tmp_path: Path) -> None:
    state(gpus=[{}], delay=0.3)
    sampling = Sampling()
    sampling.sampler.start()
    sampling.sampler.start()
    turns: List[int] = []
    sampling.loop.later(0, lambda: turns.append(len(sampling.results)))
    assert [gpu.uuid for gpu in sampling.wait().gpus] == [UUID % 0]
    assert turns == [0], "the loop waited for the sample"
    assert len(calls(tmp_path)) == 2, "two samples at a time"
    state(mode="nodev")
    sampling.sampler.start()
    assert "no GPU" in str(sampling.wait())
    state(gpus=[{}, {}])
    sampling.sampler.start()
    assert len(sampling.wait().gpus) == 2
    sampling.sampler.close()


def test_closing_the_sampler_ends_a_hanging_nvidia_smi(state: State, tmp_path: Path) -> None:
    state(mode="hang")
    sampling = Sampling()
    sampling.sampler.start()
    eventually(lambda: (tmp_path / "calls").exists() and len(calls(tmp_path)) == 2, "two calls")
    sampling.sampler.close()
    started: Dict[int, Any] = dict(calls(tmp_path))
    assert len(started) == 2 and not any(map(alive, started))
    sampling.sampler.start()
    eventually(
        lambda: "loop-worker" not in [thread.name for thread in threading.enumerate()], "the thread's end"
    )
    sampling.loop.later(0, sampling.loop.stop)
    sampling.loop.run()
    assert not sampling.results, "delivered after the end"
