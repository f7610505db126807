"""Every state that nvidia-smi reports, from the text to the verdict.

Where the texts come from. No driver was queried for exactly our fields, so each line is composed; what is recorded is
what stands in it:
- the values of healthy GPUs (memory, reserved, utilization, what is N/A, names) of drivers 418, 515, 525 and 595 are
  those of the reports of `nvidia-smi -q -x` among telegraf's test data;
- `[GPU is lost]`, `[GPU requires reset]` beside 0 MiB, `[Unknown Error]`, "Unable to determine the device handle …",
  and what a driver prints that does not work, are quoted in public reports of users (issues of
  NVIDIA/open-gpu-kernel-modules, NVIDIA/dcgm-exporter, enkore/i3pystatus and others);
- `[Not Supported]`, `[N/A]`, `[Not Found]`, `[Insufficient Permissions]`, the compute modes, retired pages, remapped
  rows and recovery actions are written after nvidia-smi's manual.
`ERR!` stands only in nvidia-smi's tables; it is read in case.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import List, NamedTuple

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.devices.gpu import Gpu, SmiError
from jupyter_gpu_kernel.agent.gpus.devices.nvidia_csv import fields_of, parse
from jupyter_gpu_kernel.agent.gpus.devices.nvidia_smi import NvidiaSmi
from jupyter_gpu_kernel.agent.gpus.judge import choose, judge
from jupyter_gpu_kernel.agent.system import procfs

ME, GONE = os.getpid(), 2**22 + 1
OWNER = procfs.user_name(os.getuid())
PROC = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Thu Sep  8 21:53:18 UTC 2022\nGCC version:  gcc 9.4.0\n"


class Case(NamedTuple):
    """One GPU. `gpu`, `apps`: what nvidia-smi prints; `reason`: a part of the verdict's, "" if the GPU is free."""

    name: str
    driver: str
    gpu: str
    apps: str = ""
    reason: str = ""
    for_ever: bool = False


UUID = "GPU-12345678-aaaa-bbbb-cccc-0123456789ab"
# index, uuid, total, used, utilization, compute mode, retired pages, ECC
# [450: MIG, remapped pending, failed] [510: reserved] [565: recovery action] name
T4 = f"0, {UUID}, 15360, {{}}, {{}}, {{}}, No, 0, [N/A], [N/A], [N/A], 388, Tesla T4"
RTX = f"0, {UUID}, 24576, {{}}, {{}}, {{}}, [N/A], [N/A], [N/A], [N/A], [N/A], 316, NVIDIA GeForce RTX 3090"
OLD = f"0, {UUID}, 5912, {{}}, {{}}, {{}}, [Not Supported], [Not Supported], GeForce GTX 1660 Ti"
A100 = f"0, {UUID}, 40536, {{}}, {{}}, {{}}, [N/A], 0, {{}}, No, No, A100-SXM4-40GB"
ADA = (
    f"0, {UUID}, 20475, {{}}, {{}}, {{}}, [N/A], {{}}, [N/A], {{}}, {{}}, 460, {{}}, NVIDIA RTX 4000 SFF Ada"
)
SOUND = ("0", "No", "No", "None")

CASES = [
    # --- free
    Case("an old driver without processes", "418.43", OLD.format(0, 0, "Default")),
    Case(
        "an old driver says why there is no process",
        "418.43",
        OLD.format(0, 0, "Default"),
        "No running processes found\n",
    ),
    Case("driver 470", "470.182.03", A100.format(0, 0, "Default", "Disabled")),
    Case("driver 515", "515.105.01", T4.format(2, 0, "Default")),
    Case("driver 525", "525.147.05", RTX.format(1, 0, "Default")),
    Case("driver 595", "595.84", ADA.format(1, 0, "Default", *SOUND)),
    Case("an open kernel module", "550.54.14", RTX.format(1, 0, "Default")),
    Case("graphics only: Xorg is no compute process", "515.105.01", T4.format(22, 0, "Default")),
    Case("Xorg and gnome-shell, and the desktop is drawn", "525.147.05", RTX.format(116, 3, "Default")),
    Case("a virtual GPU without utilization, empty", "535.183.01", RTX.format(0, "[N/A]", "Default")),
    Case("exclusive mode, nobody there", "535.183.01", RTX.format(1, 0, "Exclusive_Process")),
    Case("an unknown compute mode", "418.43", OLD.format(0, 0, "[Not Supported]")),
    # --- processes
    Case(
        "one's own",
        "525.147.05",
        RTX.format(1007, 0, "Default"),
        f"{UUID}, {ME}, /usr/bin/python3, 1005",
        f"in use by {OWNER} (pid {ME}, python3, 1005 MiB",
    ),
    Case(
        "another user's",
        "515.105.01",
        T4.format(1032, 0, "Default"),
        f"{UUID}, 1, python, 1005",
        f"in use by {procfs.user_name(0)} (pid 1, python, 1005 MiB",
    ),
    Case(
        "memory of a process not told",
        "536.40",
        RTX.format(1128, 0, "Default"),
        f"{UUID}, {ME}, python, [N/A]",
        f"in use by {OWNER} (pid {ME}, python",
    ),
    Case(
        "exclusive mode, one process",
        "535.183.01",
        RTX.format(400, 0, "Exclusive_Process"),
        f"{UUID}, 1, python, 390",
        "in use by",
    ),
    Case(
        "a ghost: its process has ended",
        "470.182.03",
        A100.format(20371, 0, "Default", "Disabled"),
        f"{UUID}, {GONE}, [Not Found], 20360",
        f"in use by an unknown user (pid {GONE} is hidden or has ended, ?, 19.9 GiB)",
    ),
    Case(
        "hidepid, or another pid namespace",
        "535.183.01",
        RTX.format(600, 3, "Default"),
        f"{UUID}, {GONE}, [Insufficient Permissions], 590",
        "in use by an unknown user",
    ),
    Case(
        "not even the pid",
        "450.80.02",
        A100.format(600, 3, "Default", "Disabled"),
        f"{UUID}, [Insufficient Permissions], [Insufficient Permissions], [Insufficient Permissions]",
        "in use by an unknown user (pid ?, ?)",
    ),
    # --- no processes, but in use
    Case(
        "a container, or a ghost that is not listed",
        "418.43",
        OLD.format(4371, 0, "Default"),
        "",
        "4.3 GiB are used by no visible process",
    ),
    Case(
        "a desktop with browsers",
        "536.40",
        RTX.format(1128, 0, "Default"),
        "",
        "1.1 GiB are used by no visible process",
    ),
    Case(
        "load without memory",
        "535.183.01",
        RTX.format(1, 40, "Default"),
        "",
        "busy: up to 40 % utilization in 3 samples, although no process is visible",
    ),
    Case(
        "load with the memory of a context",
        "535.183.01",
        RTX.format(300, 100, "Default"),
        "",
        "busy: up to 100 % utilization in 3 samples",
    ),
    # --- unknown is not 0
    *(
        Case(
            f"memory {word}",
            "535.183.01",
            RTX.format(word, 0, "Default"),
            "",
            "does not report its memory use",
        )
        for word in (
            "[N/A]",
            "[Not Supported]",
            "[Insufficient Permissions]",
            "[Unknown Error]",
            "ERR!",
            "N/A",
            "12 MiB",
            "",
        )
    ),
    *(
        Case(
            f"utilization {word}, and some memory",
            "418.43",
            OLD.format(300, word, "Default"),
            "",
            "does not report its utilization ([N/A]), and 300 MiB are used",
        )
        for word in ("[N/A]", "[Not Supported]", "[Unknown Error]", "ERR!")
    ),
    # --- never to be used
    Case("prohibited", "535.183.01", RTX.format(1, 0, "Prohibited"), "", "compute mode Prohibited", True),
    Case(
        "MIG mode, no device",
        "470.182.03",
        A100.format(0, "[N/A]", "Default", "Enabled"),
        "",
        "it has no MIG device",
        True,
    ),
    Case(
        "MIG mode, processes named by their device",
        "470.182.03",
        A100.format(0, "[N/A]", "Default", "Enabled"),
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f, 34965, python, 14195",
        "it has no MIG device",
        True,
    ),
    Case(
        "lost while it is listed",
        "535.183.01",
        RTX.format("[GPU is lost]", "[GPU is lost]", "[GPU is lost]"),
        "",
        "the driver has lost it",
        True,
    ),
    Case(
        "lost, and its processes are, too",
        "535.183.01",
        RTX.format("[GPU is lost]", "[GPU is lost]", "[GPU is lost]"),
        "[GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]",
        "the driver has lost it",
        True,
    ),
    Case(
        "to be reset: it seems empty",
        "550.54.14",
        RTX.format(0, "[GPU requires reset]", "Default"),
        "",
        "must be reset by an administrator",
        True,
    ),
    Case(
        "without a UUID",
        "535.183.01",
        RTX.format(1, 0, "Default").replace(UUID, "[Unknown Error]"),
        "",
        "nvidia-smi cannot query it: [Unknown Error]",
        True,
    ),
    *(
        Case(
            f"recovery action {action}",
            "595.84",
            ADA.format(1, 0, "Default", 0, "No", "No", action),
            "",
            f"must recover it (nvidia-smi says: {action})",
            True,
        )
        for action in ("Reset", "Reboot", "Drain P2P", "Drain and Reset")
    ),
    Case(
        "rows cannot be remapped",
        "595.84",
        ADA.format(1, 0, "Default", 8, "No", "Yes", "None"),
        "",
        "row remapping failed",
        True,
    ),
    Case(
        "retired pages",
        "418.43",
        OLD.format(0, 0, "Default").replace("[Not Supported]", "Yes", 1),
        "",
        "after a reboot (retired pages are pending)",
        True,
    ),
]


def gpus(case: Case, index: int = 0) -> List[Gpu]:
    text = re.sub(r"\A0", str(index), case.gpu)
    return parse(text, case.apps, fields_of(PROC % case.driver))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_verdict_and_its_reason(case: Case) -> None:
    (verdict,) = judge([gpus(case)] * 3)
    assert case.reason in verdict.reason
    assert (verdict.free, verdict.unusable) == (not case.reason, case.for_ever)
    assert verdict.free == (not verdict.reason), "every other verdict has a reason"


def test_each_state_beside_a_free_gpu() -> None:
    """What is wrong with one GPU hides no other one."""
    sound = f"9, GPU-sound, {CASES[4].gpu.partition(f'{UUID}, ')[2]}"
    for case in [case for case in CASES if case.driver.startswith("5") and ", 316," in case.gpu]:
        both = parse(f"{case.gpu}\n{sound}", case.apps, fields_of(PROC % case.driver))
        assert [verdict.free for verdict in judge([both] * 3)] == [not case.reason, True], case.name


@pytest.mark.parametrize(
    ("errors", "pending", "warning"),
    [
        ("1", "No", "1 uncorrected memory error since the driver was loaded"),
        ("32", "Yes", "32 uncorrected memory errors since the driver was loaded"),
        ("0", "Yes", "it is to be reset (row remapping is pending)"),
        ("[N/A]", "[N/A]", ""),
    ],
)
def test_a_gpu_with_memory_errors_is_taken_last(errors: str, pending: str, warning: str) -> None:
    faulty = ADA.format(1, 0, "Default", errors, pending, "No", "None")
    sound = ADA.format(1, 0, "Default", *SOUND).replace("0, GPU-1234", "1, GPU-5678")
    verdicts = judge([parse(f"{faulty}\n{sound}", "", fields_of(PROC % "595.84"))] * 3)
    assert [verdict.free for verdict in verdicts] == [True, True]
    assert verdicts[0].to_json()["warning"] == warning
    chosen = choose(verdicts, 1)
    assert chosen is not None and chosen[0].index == (1 if warning else 0)
    assert len(choose(verdicts, 2) or []) == 2


class Failure(NamedTuple):
    """The whole node: nvidia-smi prints `text` and ends with this status."""

    status: int
    text: str
    code: str
    cause: str


COMMUNICATE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n"
)
LIBRARY = (
    "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver "
    "is properly installed and present in your system.\n"
)
LOADER = (
    "nvidia-smi: error while loading shared libraries: libnvidia-ml.so.1: cannot open shared object file: No such "
    "file or directory\n"
)
FAILURES = [
    Failure(
        18,
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n",
        "driver",
        "version mismatch",
    ),
    Failure(9, COMMUNICATE, "driver", "couldn't communicate with the NVIDIA driver"),
    Failure(
        255,
        "Failed to initialize NVML: Unknown Error\n",
        "driver",
        "Failed to initialize NVML: Unknown Error",
    ),
    Failure(4, "Failed to initialize NVML: Insufficient Permissions\n", "driver", "Insufficient Permissions"),
    Failure(
        17,
        "Failed to initialize NVML: GPU access blocked by the operating system\n",
        "driver",
        "blocked by the operating system",
    ),
    Failure(12, LIBRARY, "driver", "couldn't find libnvidia-ml.so"),
    Failure(127, LOADER, "driver", "error while loading shared libraries"),
    Failure(139, "", "driver", "exit status 139: it printed nothing"),
    Failure(0, "", "", ""),
    Failure(6, "No devices were found\n", "none", "finds no GPU"),
    Failure(0, "No devices were found\n", "none", "finds no GPU"),
    Failure(
        15,
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n",
        "driver",
        "lost the node's GPUs",
    ),
]


def script(folder: Path, body: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    "failure", FAILURES, ids=[f"{one.status} {one.text[:40].strip()}" for one in FAILURES]
)
def test_a_node_whose_driver_fails(failure: Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text(failure.text)
    script(tmp_path, f"cat '{tmp_path}/text'; exit {failure.status}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    smi = NvidiaSmi(RUNTIME)
    if not failure.code:
        assert smi.read(30) == []
        return
    with pytest.raises(SmiError, match=failure.cause) as caught:
        smi.read(30)
    assert caught.value.code == failure.code
    assert "--gpus 0" in caught.value.remedy


LOST = [
    "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU",
    "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error",
    "Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error",
]


@pytest.mark.parametrize("text", LOST)
def test_a_gpu_that_is_lost_while_others_are_read(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drivers that refuse all GPUs when one is lost; also when another one is lost later."""
    row = f"'{sys.executable}' -IS '{tmp_path}/smi.py' \"$@\""
    (tmp_path / "smi.py").write_text(
        f"import sys\nlost = open({str(tmp_path / 'lost')!r}).read().split()\nwords = sys.argv[1:]\n"
        "ids = words[words.index('-i') + 1].split(',') if '-i' in words else ['0', '1', '2']\n"
        f"if set(ids) & set(lost):\n    print({text!r})\n    sys.exit(15)\n"
        "if not set(ids) <= {'0', '1', '2'}:\n    print('No devices were found')\n    sys.exit(6)\n"
        "for id in ids:\n    if 'query-gpu' in words[0]:\n"
        "        count = words[0].count(',') - 6\n"
        "        print(', '.join([id, 'GPU-' + id, '24576', '1', '0', 'Default', *['[N/A]'] * count, 'RTX']))\n"
    )
    script(tmp_path, row)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    smi = NvidiaSmi(RUNTIME)
    free: List[List[bool]] = []
    for lost in ("", "1", "1 2"):
        (tmp_path / "lost").write_text(lost)
        verdicts = judge([smi.read(30)] * 3)
        free.append([verdict.free for verdict in verdicts])
        shown = " ".join(text.split())
        assert all(shown in verdict.reason for verdict in verdicts if not verdict.free)
    assert free == [[True, True, True], [True, False, True], [True, False, False]]


def test_a_driver_tells_its_version() -> None:
    assert "mig.mode.current" not in fields_of(PROC % "418.43")
    assert "gpu_recovery_action" not in fields_of(PROC % "535.183.01")
    opened = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)"
    )
    assert fields_of(opened) == fields_of("") == fields_of("something else")
