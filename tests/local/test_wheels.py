"""Wheels for another machine: real runs of pip, on folders of wheels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from wheelhouse import make_wheel

from jupyter_gpu_kernel.cli.add.wheels import Machine, download
from jupyter_gpu_kernel.errors import GpuKernelError

pytestmark = pytest.mark.full

OLD = Machine("x86_64", "glibc 2.17", "3.8.10", "cp38")
NEW = Machine("aarch64", "glibc 2.39", "3.13.1", "cp313")
MARKERS = (
    *('python_version < "3.9"', 'sys_platform == "win32"', 'platform_system == "Darwin"'),
    *('platform_machine == "aarch64"', 'extra == "test"'),
)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "house"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return folder


def names(folder: Path, machine: Machine, *wanted: str) -> list[str]:
    target = folder.parent / f"wheels-{machine.abi}"
    target.mkdir()
    wheels = download(wanted, machine, target, lambda text: None)
    assert {wheel.path.name for wheel in wheels} <= {path.name for path in target.iterdir()}
    return [f"{wheel.name} {wheel.version}" for wheel in wheels]


def test_requirements_are_those_of_the_other_machine(house: Path) -> None:
    """Also where this one is newer, or another system."""
    make_wheel(
        house, "kernel", "2.0",
        [
            *map("{}; {}".format, ("backport", "windows", "mac", "arm", "extra"), MARKERS), "base[fast]",
        ],
    )  # fmt: skip
    make_wheel(house, "base", "1.0", ['quick; extra == "fast"'])
    for name in ("backport", "quick"):
        make_wheel(house, name, "1.0")
    assert names(house, OLD, "kernel") == ["backport 1.0", "base 1.0", "kernel 2.0", "quick 1.0"]
    markers = [Requirement(f"x; {one}").marker for one in MARKERS]
    assert [one and one.evaluate(NEW.markers("")) for one in markers] == [False, False, False, True, False]


def test_the_newest_release_for_that_python_and_c_library(house: Path) -> None:
    make_wheel(house, "kernel", "6.0")
    make_wheel(house, "kernel", "7.0", python=">=3.10")
    make_wheel(house, "native", "1.0", tag="cp38-cp38-manylinux2014_x86_64")
    make_wheel(house, "native", "2.0", tag="cp38-abi3-manylinux_2_28_x86_64")
    make_wheel(house, "native", "2.0", tag="cp312-abi3-manylinux_2_28_aarch64")
    assert names(house, OLD, "kernel", "native") == ["kernel 6.0", "native 1.0"]
    assert names(house, NEW, "kernel", "native") == ["kernel 7.0", "native 2.0"]


def test_a_version_that_another_package_excludes_is_replaced(house: Path) -> None:
    for version in ("1.0", "2.0"):
        make_wheel(house, "shared", version)
    make_wheel(house, "kernel", "1.0", ["shared", "other"])
    make_wheel(house, "other", "1.0", ["shared<2"])
    assert names(house, OLD, "kernel") == ["kernel 1.0", "other 1.0", "shared 1.0"]


def test_without_a_wheel_for_that_machine(house: Path) -> None:
    make_wheel(house, "native", "1.0", tag="cp38-cp38-manylinux_2_28_x86_64")
    with pytest.raises(GpuKernelError) as raised:
        names(house, OLD, "native")
    assert "Python 3.8.10 on x86_64 with glibc 2.17" in raised.value.cause
    assert "native" in raised.value.cause and "--python PATH" in raised.value.remedy


def test_musl(house: Path) -> None:
    make_wheel(house, "native", "1.0", tag="cp312-cp312-musllinux_1_2_x86_64")
    make_wheel(house, "native", "2.0", tag="cp312-cp312-manylinux_2_17_x86_64")
    assert names(house, Machine("x86_64", "musl", "3.12.1", "cp312"), "native") == ["native 1.0"]


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for a Python is a script for sh")
def test_a_python_without_pip(house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one from which it was made is asked; then there is none anywhere."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no module named pip >&2\nexit 1\n")
    program.chmod(0o755)
    make_wheel(house, "kernel", "1.0")
    monkeypatch.setattr(sys, "_base_executable", sys.executable)
    monkeypatch.setattr(sys, "executable", str(program))
    assert names(house, OLD, "kernel") == ["kernel 1.0"]
    monkeypatch.setattr(sys, "_base_executable", str(program))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GpuKernelError, match=r"has no pip, which downloads the packages") as raised:
        names(house, NEW, "kernel")
    assert "-m ensurepip" in raised.value.remedy
