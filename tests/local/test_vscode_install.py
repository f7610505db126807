"""`jupyter gpu-kernel vscode`: into which editors the extension goes, and what is said where that cannot be done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_gpu_kernel

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are scripts with a #! line")
PACKAGE = Path(jupyter_gpu_kernel.__file__).parent


class Computer:
    """A copy of the package, and a PATH with stand-ins for editors only."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "programs"
        self.programs.mkdir()
        self._packages = folder / "packages"
        ignored = shutil.ignore_patterns("vscode_extension", "labextension", "__pycache__")
        shutil.copytree(PACKAGE, self._packages / PACKAGE.name, ignore=ignored)
        self.extension = self._packages / PACKAGE.name / "vscode_extension" / "remote-gpu.vsix"

    def build_extension(self) -> None:
        self.extension.parent.mkdir()
        self.extension.write_bytes(b"")

    def add_editor(self, name: str, then: str = "exit 0") -> Path:
        """Add an editor that notes how it was called. Return the file of the notes."""
        calls = self.programs / f"{name}-calls"
        program = self.programs / name
        program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n{then}\n')
        program.chmod(0o755)
        return calls

    def run(self, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "jupyter_gpu_kernel.cli", "vscode", *words],
            env={
                **os.environ,
                "PYTHONPATH": str(self._packages),
                "PATH": f"{path or self.programs}:/usr/bin:/bin",
            },
            cwd=self.programs,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    if any(shutil.which(name, path="/usr/bin:/bin") for name in ("code", "codium", "cursor", "code-server")):
        pytest.skip("this computer has an editor of its own in /usr/bin")
    return Computer(tmp_path)


def test_each_editor_installs_the_extension(computer: Computer) -> None:
    computer.build_extension()
    calls = [computer.add_editor(name) for name in ("code", "code-server")]
    done = computer.run("install")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"Installed into {computer.programs / name}." for name in ("code", "code-server")
    ]
    assert [one.read_text() for one in calls] == [f"--install-extension {computer.extension} --force\n"] * 2


def test_an_editor_that_refuses_is_named_and_the_others_go_on(computer: Computer) -> None:
    computer.build_extension()
    computer.add_editor("code", "echo first; echo 'it is too old' >&2; exit 3")
    computer.add_editor("cursor")
    done = computer.run("install", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == [
        {"editor": str(computer.programs / "code"), "ok": False, "message": "first it is too old"},
        {"editor": str(computer.programs / "cursor"), "ok": True, "message": ""},
    ]
    assert "did not install the extension: first it is too old" in done.stderr
    assert "Install from VSIX" in done.stderr


def test_without_an_editor_the_error_says_how_else(computer: Computer) -> None:
    computer.build_extension()
    done = computer.run("install")
    assert (done.returncode, done.stdout) == (1, "")
    assert "none of the editors code," in done.stderr and str(computer.extension) in done.stderr


def test_an_extension_that_was_not_built_is_an_error(computer: Computer) -> None:
    calls = computer.add_editor("code")
    done = computer.run("install")
    assert done.returncode == 1 and "was not built" in done.stderr and "make vscode" in done.stderr
    assert not calls.exists()


def test_the_hosts_of_the_ssh_configuration_are_json(computer: Computer) -> None:
    assert isinstance(json.loads(computer.run("hosts").stdout), list)


def test_another_action_is_bad_usage(computer: Computer) -> None:
    assert computer.run("remove").returncode == 2


def test_an_editor_that_only_the_current_folder_has_is_not_run(computer: Computer) -> None:
    """The folder may be another person's repository. On Windows `which` finds programs there without a PATH."""
    computer.build_extension()
    calls = computer.add_editor("code")
    done = computer.run("install", path=".")
    assert done.returncode == 1 and "is on PATH" in done.stderr and not calls.exists()
