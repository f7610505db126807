"""`check --gpu`: real kernels on a node with a practice nvidia-smi, and modules in place of the frameworks which crash,
hang, print and fork as broken ones do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from remote import Remote
from waiting import DEADLINE

from jupyter_gpu_kernel.agent import framework_check
from jupyter_gpu_kernel.cli.running.gpu_check import _MARK, LIMITS, GpuCheck, Limits
from jupyter_gpu_kernel.cli.terminal import Progress
from jupyter_gpu_kernel.client import HubClient

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]

COMPUTES = """
import os
__version__ = "2.6.0+cu124"
class version: cuda, hip = "12.4", None
class Ones:
    def __init__(self, *shape, device): self.total = shape[0] * shape[1] * shape[0]
    def __matmul__(self, other): return self
    def sum(self): return self.total
def ones(*shape, device): return Ones(*shape, device=device)
"""
CUPY = """
__version__ = "13.0"
class Ones:
    def __init__(self, shape, dtype): self.total = shape[0] * shape[1] * shape[0]
    def __matmul__(self, other): return self
    def sum(self): return self.total
ones = Ones
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""
REPORT = """<?xml version="1.0" ?>
<nvidia_smi_log>
\t<driver_version>470.57.02</driver_version>
\t<cuda_version>11.4</cuda_version>
"""


class Node:
    """`check` is `check --gpu` of a kernelspec whose Python has the modules that `write` has made."""

    def __init__(self, remote: Remote, hub: HubClient, folder: Path) -> None:
        self.remote, self.hub, self.folder = remote, hub, folder

    def write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_text(text)

    def check(self, limits: Limits = LIMITS, **settings: Any) -> dict[str, dict[str, Any]]:
        """The rows, by their steps."""
        spec = self.remote.write(
            "checked", gpus=1, cwd=str(self.folder), env={"PYTHONPATH": str(self.folder)}
        )
        host = spec.settings.replace(**settings)

        def ask(op: str, **arguments: Any) -> Any:
            return self.hub.call(op, timeout=DEADLINE, **arguments)

        check = GpuCheck(ask, Progress(False), "checked", host, limits)
        check.run()
        assert len({row["step"] for row in check.rows}) == len(check.rows)
        self.remote.nothing_left()
        return {row["step"]: row for row in check.rows}


@pytest.fixture
def node(remote: Remote, tmp_path: Path) -> Iterator[Node]:
    (tmp_path / "modules").mkdir()
    with HubClient() as hub:
        yield Node(remote, hub, tmp_path / "modules")


@pytest.fixture
def gpus(remote: Remote) -> Iterator[Callable[[str], None]]:
    """Changes what nvidia-smi shows, for one test."""
    state = remote.folder / "gpus.json"
    before = state.read_text()
    yield lambda text: os.replace(_written(remote.folder / "gpus.new", text), state)
    state.write_text(before)


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_each_framework_gets_a_process_and_the_same_gpu(node: Node) -> None:
    node.write("torch", COMPUTES + "print('|', end='')")
    node.write("cupy", CUPY)
    rows = node.check()
    assert list(rows) == ["driver", "torch", "cupy", "verdict"]
    facts = rows["driver"]["facts"]
    assert (facts["driver"], facts["cuda"], len(facts["gpus"])) == ("550.54.15", "12.4", 4)
    torch = rows["torch"]
    assert torch["ok"] and torch["checked"] and "computes correctly on GPU " in torch["message"], torch
    assert torch["facts"]["gpu"] in node.remote.free
    assert (torch["facts"]["version"], torch["facts"]["built_for"]) == ("2.6.0+cu124", "CUDA 12.4")
    assert torch["facts"]["output"] == "|"
    assert rows["cupy"]["facts"]["gpu"] == torch["facts"]["gpu"]


def test_a_wrong_product_is_noticed(node: Node) -> None:
    node.write("torch", COMPUTES + "Ones.sum = lambda self: self.total - 1")
    rows = node.check()
    assert "computes wrong numbers" in rows["torch"]["message"] and not rows["verdict"]["ok"]


def test_a_crash_is_a_row_and_the_next_framework_is_checked(node: Node) -> None:
    node.write("torch", DAEMON + "os.abort()")
    node.write("jax", "__version__ = '0.4.2'\nraise SystemExit(3)")
    rows = node.check()
    assert not rows["torch"]["ok"] and "SIGABRT" in rows["torch"]["message"], rows
    assert "while it was imported" in rows["torch"]["message"]
    assert "SystemExit: 3" in rows["jax"]["message"]
    assert rows["verdict"]["message"] == "PyTorch and JAX cannot use the GPUs"


def test_a_hang_is_a_row(node: Node) -> None:
    node.write("torch", DAEMON + "time.sleep(600)")
    rows = node.check(Limits(framework=2.0))
    assert "did not end in time while it was imported" in rows["torch"]["message"], rows
    assert "Try again" in rows["torch"]["remedy"]


def test_without_a_free_gpu_the_rest_is_checked(node: Node, gpus: Callable[[str], None]) -> None:
    node.write("torch", COMPUTES + "print(repr(os.environ['CUDA_VISIBLE_DEVICES']))")
    gpus(json.dumps({"gpus": [{"processes": [{"pid": 1, "memory": 4000}]}]}))
    rows = node.check(Limits(free=2.0))
    assert rows["torch"]["ok"] and not rows["torch"]["checked"]
    assert (
        rows["torch"]["message"] == "2.6.0+cu124 (built for CUDA 12.4): not checked on a GPU: no GPU is free"
    )
    assert rows["torch"]["facts"]["output"] == "''" and not rows["verdict"]["checked"]


def test_a_kernelspec_without_gpus(node: Node) -> None:
    node.write("torch", COMPUTES)
    rows = node.check(gpus=0)
    assert rows["torch"]["facts"]["no_gpu"] == "the kernelspec asks for no GPU (--gpus 0)"


def test_a_kernel_that_does_not_start(node: Node) -> None:
    rows = node.check(setup=("echo no such module >&2; exit 7",))
    assert list(rows) == ["kernel"] and not rows["kernel"]["ok"]
    assert "no such module" in rows["kernel"]["message"]


def test_the_command(node: Node) -> None:
    """A PyTorch for the CPU, in place of which a module says that it is one; and nothing that is recorded as used. The
    kernel has the variables of the env file, as each kernel of the kernelspec does."""
    node.write("torch", "__version__ = '2.6.0+cpu'\nclass version: cuda = hip = None\nprint('noise')\n")
    env_file = node.folder / "env"
    env_file.touch(0o600)
    env_file.write_text(f"PYTHONPATH={node.folder}\n")
    node.remote.write("checked", gpus=1, env_file=str(env_file))
    result = node.remote.program("check", "checked", "--gpu", "--json")
    *_, driver, torch, verdict = json.loads(result.stdout)
    assert result.returncode == 1
    assert driver["message"].startswith("driver 550.54.15, which supports CUDA up to 12.4; 4 ×")
    assert not torch["ok"] and "built for the CPU only" in torch["message"] and "for GPUs" in torch["remedy"]
    assert verdict["message"] == "PyTorch cannot use the GPUs"
    node.remote.nothing_left()


def test_although_the_driver_fails(node: Node, gpus: Callable[[str], None]) -> None:
    node.write("torch", COMPUTES)
    node.remote.write("checked", gpus=1, cwd=str(node.folder), env={"PYTHONPATH": str(node.folder)})
    gpus('{"mode": "mismatch"}')
    result = node.remote.program("check", "checked", "--gpu", "--json")
    rows = {row["step"]: row for row in json.loads(result.stdout)}
    assert [step for step, row in rows.items() if not row["ok"]] == ["gpus", "driver", "verdict"]
    assert "reboot" in rows["driver"]["remedy"]
    assert "mismatch" in rows["torch"]["facts"]["no_gpu"] and rows["torch"]["facts"]["version"]
    node.remote.nothing_left()


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (REPORT, ("470.57.02", "11.4")),
        (REPORT.replace("11.4", "N/A"), ("470.57.02", "")),
        ("Failed to initialize NVML: Driver/library version mismatch", ("", "")),
        (None, ("", "")),
    ],
)
def test_what_drivers_report(tmp_path: Path, report: str | None, expected: tuple[str, str]) -> None:
    program = tmp_path / "nvidia-smi"
    if report is not None:
        (tmp_path / "report").write_text(report)
        program.write_text(f"#!/bin/sh\n[ \"$*\" = '-q -x' ] && exec /bin/cat '{tmp_path}/report'\n")
        program.chmod(0o755)
    code = Path(framework_check.__file__).read_text() + "\ndescribe()"
    env = {**os.environ, "PATH": str(tmp_path)}
    printed = subprocess.check_output([sys.executable, "-I", "-c", code], env=env, text=True)
    facts = json.loads(printed.partition(_MARK)[2])
    assert (facts["driver"], facts["cuda"]) == expected
