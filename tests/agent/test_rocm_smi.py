"""AMD GPUs, on recorded output only: no AMD GPU has run this.

The values of the cards are those that users and telegraf's test data show for ROCm 4.3 to 6.4, shortened to the keys
that are read; the lists of processes are from issues of ROCm/ROC-smi, ROCm/rocm_smi_lib and ROCm/legacy-rocm-build, and
otherwise composed as rocm_smi.py prints them. Which variables ROCm and torch read is taken from their sources.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.devices.gpu import AMD, NVIDIA, Gpu, SmiError, variables, visible_uuids
from jupyter_gpu_kernel.agent.gpus.devices.gpu_reader import GpuReader, device_variable, gpu_reader
from jupyter_gpu_kernel.agent.gpus.devices.rocm_smi import parse
from jupyter_gpu_kernel.agent.gpus.judge import judge
from jupyter_gpu_kernel.agent.gpus.requirements import Allocation, Requirements
from jupyter_gpu_kernel.agent.system import procfs

ME, OWNER = os.getpid(), procfs.user_name(os.getuid())
MIB = 1 << 20
HEAD = """

============================ ROCm System Management Interface ============================
================================== GPUs Indexed by PID ===================================
"""
TAIL = """\
==========================================================================================
================================== End of ROCm SMI Log ===================================
"""
NOBODY = f"{HEAD}No KFD PIDs currently running\n{TAIL}"
NO_JSON = "WARNING:root:No JSON data to report\n"
MI100 = {  # ROCm 6.0.2
    "Device ID": "0x738c", "Device Rev": "0x1", "Unique ID": "0x79ccd55167a2124a", "GPU use (%)": "0",
    "VRAM Total Memory (B)": "34342961152", "VRAM Total Used Memory (B)": "6750208",
    "Card series": "Arcturus GL-XL [Instinct MI100]", "Card model": "0x0c34",
    "Card vendor": "Advanced Micro Devices, Inc. [AMD/ATI]", "Card SKU": "D3431401",
}  # fmt: skip
VEGA = {  # with a unique id of 15 digits
    "GPU ID": "0x6861", "Unique ID": "0x2150e7d042a1124", "GPU use (%)": "0",
    "VRAM Total Memory (B)": "17163091968", "VRAM Total Used Memory (B)": "17776640",
    "Card model": "0xc1e", "Card vendor": "Advanced Micro Devices, Inc. [AMD/ATI]", "Card SKU": "D05101",
}  # fmt: skip
RX6700 = {  # ROCm 4.3: names are numbers, and there is no unique id
    "GPU ID": "0x73df", "Unique ID": "N/A", "GPU use (%)": "0", "VRAM Total Memory (B)": "12868124672",
    "VRAM Total Used Memory (B)": "1622728704", "Card series": "0x1002", "Card model": "0x1002",
    "Card vendor": "0x1002", "Card SKU": "67XA6S",
}  # fmt: skip
RX6800 = {  # ROCm 6.3, beside the graphics of the processor
    "Unique ID": "0x9246aaaaaaaaaaaa", "VRAM Total Memory (B)": "17163091968", "VRAM Total Used Memory (B)": "26079232",
    "Card Series": "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", "Card Model": "0x73bf", "Card SKU": "001",
    "Node ID": "1", "GUID": "45534", "GFX Version": "gfx1030",
}  # fmt: skip
RAPHAEL = {
    "Unique ID": "N/A", "VRAM Total Memory (B)": "67108864", "VRAM Total Used Memory (B)": "26079232",
    "Card Series": "Raphael", "Card Model": "0x164e", "Card SKU": "RAPHAEL", "Node ID": "2", "GUID": "52156",
}  # fmt: skip


def report(*cards: Dict[str, str], **system: str) -> str:
    found: Dict[str, Any] = {f"card{number}": facts for number, facts in enumerate(cards)}
    return json.dumps({**found, **({"system": system} if system else {})}) + "\n"


def pids(**system: str) -> str:
    return json.dumps({"system": system}) if system else NO_JSON


def uses(*lines: str) -> str:
    return HEAD + "\n".join(lines) + "\n" + TAIL


def reasons(gpus: List[Gpu]) -> List[str]:
    return [verdict.reason for verdict in judge([gpus] * 3)]


def test_what_the_releases_call_it() -> None:
    first, vega, rx = parse(report(MI100, VEGA, RX6700), NO_JSON, NOBODY)
    assert str(first) == "GPU 0 (Arcturus GL-XL [Instinct MI100])"
    assert (first.uuid, first.memory_total_mib, first.memory_used_mib) == ("GPU-79ccd55167a2124a", 32752, 6)
    assert (first.utilization, first.processes) == (0, ())
    assert (vega.uuid, vega.name) == ("GPU-02150e7d042a1124", "D05101")
    assert (rx.uuid, rx.name, rx.memory_used_mib) == ("AMD-2", "67XA6S", 1547)
    assert reasons([first, vega]) == ["", ""]
    assert "1.5 GiB are used by no visible process" in reasons([rx])[0], "its display"


@pytest.mark.parametrize("word", ["N/A", "None", "", "unknown", "12 MB", "-1"])
def test_unknown_is_none_and_never_zero(word: str) -> None:
    keys = ("GPU use (%)", "VRAM Total Memory (B)", "VRAM Total Used Memory (B)")
    (gpu,) = parse(report({**MI100, **dict.fromkeys(keys, word)}), NO_JSON, NOBODY)
    assert (gpu.utilization, gpu.memory_total_mib, gpu.memory_used_mib) == (None, None, None)
    assert "does not report its memory use" in reasons([gpu])[0]


def test_a_card_that_is_busy() -> None:
    assert "40 % utilization" in reasons(parse(report({**MI100, "GPU use (%)": "40"}), NO_JSON, NOBODY))[0]


def test_the_graphics_of_the_processor_are_no_gpu_to_compute_on() -> None:
    gpu, integrated = parse(report(RX6800, RAPHAEL), NO_JSON, NOBODY)
    assert [gpu.uuid, integrated.uuid] == ["GPU-9246aaaaaaaaaaaa", "AMD-1"]
    assert reasons([gpu, integrated])[0] == "" and "integrated" in reasons([gpu, integrated])[1]
    assert reasons(parse(report(RAPHAEL), NO_JSON, NOBODY)) == [""], "unless there is nothing else"


def test_the_order_is_that_of_the_nodes_of_the_driver() -> None:
    """rocm-smi orders by bus; ROCm, whose numbers are made visible, by node."""
    cards = [{**RX6800, "Node ID": "2"}, {**RX6700, "Node ID": "1"}]
    found = parse(report(*cards), NO_JSON, uses(f"PID {ME} is using 1 DRM device(s):", "0 "))
    assert [(gpu.index, gpu.uuid, len(gpu.processes)) for gpu in found] == [
        (0, "AMD-0", 0),
        (1, "GPU-9246aaaaaaaaaaaa", 1),
    ]


def test_the_parts_of_one_gpu_are_numbered() -> None:
    assert [gpu.uuid for gpu in parse(report(MI100, MI100), NO_JSON, NOBODY)] == ["AMD-0", "AMD-1"]


def test_processes() -> None:
    text = uses(
        f"PID {ME} is using 1 DRM device(s):", "1 ", "PID 1 is using 2 DRM device(s):", "0 2 ",
        "PID 3722222 is using 0 DRM device(s)",
    )  # fmt: skip
    named = pids(
        **{
            f"PID{ME}": "pt_main_thread, 1, 177386942464, 0, 4",
            "PID1": "a, b, 2, 200000000, 0, unknown",
            "PID3722222": "test_ref, 0, 0, 0, 0",
        }
    )
    cards = [{**MI100, "Unique ID": hex(number + 1)} for number in range(3)]
    first, second, third = parse(report(*cards), named, text)
    assert [process.pid for process in first.processes] == [1] == [process.pid for process in third.processes]
    assert first.processes[0].memory_mib is None, "on both GPUs together"
    (mine,) = second.processes
    assert (mine.pid, mine.user, mine.memory_mib) == (ME, OWNER, 177386942464 // MIB)
    assert reasons([second])[0].startswith(f"in use by {OWNER} (pid {ME}")


@pytest.mark.parametrize(
    "line", ["PID 3828095 is using 0 DRM device(s)", "PID 3828095 is using 2 DRM device(s):\n0"]
)
def test_a_process_whose_gpus_are_unknown_may_use_every_one_in_use(line: str) -> None:
    """As rocm-smi shows those that it may not read, and those without access to all GPUs."""
    named = pids(PID3828095="unknown, 0, unknown, unknown, unknown")
    cards = [
        {**MI100, "Unique ID": hex(at + 1), "VRAM Total Used Memory (B)": str(at * 300 * MIB)}
        for at in range(2)
    ]
    assert [bool(reason) for reason in reasons(parse(report(*cards), named, uses(line)))] == [False, True]
    unknown = [{**MI100, "VRAM Total Used Memory (B)": "None"}]
    assert "in use by an unknown user" in reasons(parse(report(*unknown), named, uses(line)))[0]


@pytest.mark.parametrize(
    ("cards", "pid_gpus", "code"),
    [
        (NO_JSON, NOBODY, "none"),
        ("{}", NOBODY, "none"),
        ("rsmi_init() failed", NOBODY, "driver"),
        ('{"card0": ', NOBODY, "driver"),
        ("[" * 100_000, NOBODY, "driver"),
        ("{" + '"a":{' * 100_000, NOBODY, "driver"),
        (report(MI100), "", "driver"),
        (report(MI100), "Permission denied", "driver"),
    ],
)
def test_anything_else_is_an_error(cards: str, pid_gpus: str, code: str) -> None:
    with pytest.raises(SmiError) as caught:
        parse(cards, NO_JSON, pid_gpus)
    assert caught.value.code == code and "--gpus 0" in caught.value.remedy


def test_warnings_around_the_report() -> None:
    text = f"WARNING: AMD GPU device(s) is/are in a low-power state.\n{report(MI100)}\nexit\n"
    assert len(parse(text, NO_JSON, NOBODY)) == 1


# --- the program


def install(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


ROCM_SMI = (
    'case "$*" in *--showpidgpus*) cat "{0}/uses";; *--showpids*) cat "{0}/pids";; *) cat "{0}/cards";; esac'
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with rocm-smi and without nvidia-smi."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, text in (("cards", report(MI100)), ("pids", NO_JSON), ("uses", NOBODY)):
        (tmp_path / name).write_text(text)
    install(tmp_path, "rocm-smi", ROCM_SMI.format(tmp_path))
    return tmp_path


def read(reader: Optional[GpuReader] = None) -> List[Gpu]:
    return (reader or gpu_reader(RUNTIME)).read(30)


def test_a_node_with_amd_gpus(place: Path) -> None:
    assert device_variable() == AMD
    reader = gpu_reader(RUNTIME)
    assert [gpu.uuid for gpu in read(reader)] == ["GPU-79ccd55167a2124a"] and reader.read_links() == {}


def test_nvidia_smi_comes_first(place: Path) -> None:
    install(place, "nvidia-smi", "echo No devices were found; exit 6")
    assert device_variable() == NVIDIA
    with pytest.raises(SmiError, match="nvidia-smi finds no GPU"):
        read()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "echo 'ERROR:root:Driver not initialized (amdgpu not found in modules)'",
            "amdgpu not found in modules",
        ),
        (
            "echo 'ERROR:root:ROCm SMI returned 8 (the expected value is 0)'; exit 8",
            "exit status 8: ERROR:root:ROCm SMI",
        ),
        ("exit 1", "it printed nothing"),
    ],
)
def test_a_broken_driver_is_reported(place: Path, body: str, words: str) -> None:
    install(place, "rocm-smi", body)
    with pytest.raises(SmiError) as caught:
        read()
    assert caught.value.code == "driver" and words in caught.value.cause


# --- what the kernel sees


def test_the_variables_of_both_vendors() -> None:
    assert variables(["GPU-a", "MIG-b"], NVIDIA)[NVIDIA] == "GPU-a,MIG-b"
    uuids = ["GPU-79ccd55167a2124a", "AMD-3"]
    found = variables(uuids, AMD)
    assert found == {AMD: "GPU-79ccd55167a2124a,3", "HIP_VISIBLE_DEVICES": "0,1", NVIDIA: "0,1"}
    assert visible_uuids(found, AMD) == uuids
    assert set(variables([], AMD).values()) == {""} and visible_uuids(variables([], AMD), AMD) == []
    assert visible_uuids({NVIDIA: "GPU-a", AMD: "0"}, NVIDIA) == ["GPU-a"]


def test_what_a_scheduler_allows() -> None:
    environ = {AMD: "1", NVIDIA: "0", "SLURM_JOB_ID": "7"}
    assert Allocation.of(environ, AMD) == (AMD, ["1"], ["1"])
    found = judge([parse(report(MI100, VEGA), NO_JSON, NOBODY)] * 3, Requirements(allowed=["1"]))
    assert [one.free for one in found] == [False, True] and "ROCR_VISIBLE_DEVICES" in found[0].reason
