"""`add` without a machine, in a terminal: what it asks, and that the command which it prints does the same."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from remote import Remote
from waiting import DEADLINE

from jupyter_gpu_kernel.wire.texts import COMMAND

pexpect = pytest.importorskip("pexpect", reason="a terminal is played with pexpect")
pytestmark = [
    pytest.mark.usefixtures("remote"),
    pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal"),
]
MACHINE, JUMPS, PYTHON, GPUS, NAME = (
    "Machine: ",
    "Through which hosts",
    "Python ",
    "GPUs that each",
    "Name, shown",
)
Start = Callable[..., "Dialogue"]


class Dialogue:
    """`add` in a terminal. `text` is what it has printed so far."""

    def __init__(self, remote: Remote, *words: str) -> None:
        self._program = pexpect.spawn(
            sys.executable,
            ["-m", "jupyter_gpu_kernel.cli", "add", *words],
            env=remote.program_environment(COLUMNS="200", PIP_NO_INDEX="1"),
            dimensions=(50, 200),
            encoding="utf-8",
            timeout=DEADLINE,
        )
        self.text = ""

    def answers(self, question: str, answer: str) -> None:
        self._program.expect_exact(question)
        self.text += str(self._program.before) + question
        self._program.sendline(answer)

    def until(self, text: str) -> None:
        self._program.expect_exact(text)
        self.text += str(self._program.before) + text

    def end(self) -> int:
        """Wait for its end, and return the exit status."""
        self._program.expect(pexpect.EOF)
        self.text += str(self._program.before)
        self._program.close()
        return int(self._program.exitstatus)

    def send_end_of_input(self) -> None:
        self._program.sendeof()

    def close(self) -> None:
        self._program.close(force=True)


@pytest.fixture
def start(remote: Remote) -> Iterator[Start]:
    begun: list[Dialogue] = []

    def begin(*words: str) -> Dialogue:
        begun.append(Dialogue(remote, *words))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


def command_in(text: str) -> list[str]:
    """The words after `add` of the command that the dialogue has printed."""
    line = text.partition("Without questions: ")[2].splitlines()[0]
    return shlex.split(line.partition(" add ")[2])


def written(remote: Remote, name: str) -> dict[str, Any]:
    path = remote.data / "kernels" / name / "kernel.json"
    return dict(json.loads(path.read_text())["metadata"]["jupyter_gpu_kernel"])


def removed(remote: Remote, name: str) -> None:
    assert remote.program("remove", name).returncode == 0


def test_a_host_of_the_ssh_configuration_is_chosen_by_its_number(remote: Remote, start: Start) -> None:
    add = start("-F", str(remote.hops.ssh_config), "--python", sys.executable)
    add.answers(MACHINE, "2")
    assert "2  work: " in add.text and "through login" in add.text
    add.answers(GPUS, "many")
    assert "3 of 4 are free" in add.text + str(add._program.buffer)
    add.answers("A whole number", "2")
    add.answers(NAME, "asked")
    assert add.end() == 0, add.text
    assert "Select “Remote GPU (asked)”" in add.text
    asked = written(remote, "asked")
    assert asked == {
        "route": ["login", "work"],
        "config": str(remote.hops.ssh_config),
        "python": sys.executable,
        "gpus": 2,
    }
    removed(remote, "asked")
    done = remote.program("add", *command_in(add.text))
    assert done.returncode == 0, done.stderr
    assert written(remote, "asked") == asked
    removed(remote, "asked")


def test_an_answer_that_is_no_machine_is_asked_again(remote: Remote, start: Start, tmp_path: Path) -> None:
    words = ["-F", str(remote.hops.ssh_config), "--python", sys.executable, "--gpus", "0"]
    add = start(*words, "--prefix", str(tmp_path), "--name", "again")
    add.answers(MACHINE, "")
    add.answers(MACHINE, "work:ssh")
    add.answers(MACHINE, "work")
    assert add.end() == 0, add.text
    assert "'work:ssh' is not a valid address" in add.text
    assert f"--prefix={tmp_path}" in command_in(add.text)


def test_where_no_gpu_is_found_it_asks_for_slurm(remote: Remote, start: Start) -> None:
    add = start("-F", str(remote.hops.ssh_config), "--python", sys.executable, "--name", "plain")
    add.answers(MACHINE, "login")
    add.answers("whose jobs have GPUs?", "n")
    add.answers(GPUS, "0")
    assert add.end() == 0, add.text
    assert "No GPU was found on this machine." in add.text
    plain = written(remote, "plain")
    assert (plain["gpus"], "slurm" in plain) == (0, False)
    removed(remote, "plain")


def test_the_way_is_asked_for_and_a_taken_name_is_replaced_only_with_a_yes(
    remote: Remote, start: Start
) -> None:
    remote.write("taken", route=["login", "work"])
    other = remote.folder / "no-jump"
    other.write_text(
        remote.hops.ssh_config.read_text()
        .replace("  ProxyJump login\n", "")
        .replace("Host work", "Host w?rk")
    )
    add = start("-F", str(other), "--python", sys.executable)
    add.answers(MACHINE, "work")
    add.answers(JUMPS, "login")
    add.answers(GPUS, "0")
    add.answers(NAME, "taken")
    add.answers("Replace it?", "n")
    add.answers(NAME, "taken")
    add.answers("Replace it?", "y")
    assert add.end() == 0, add.text
    assert command_in(add.text)[:3] == ["work", "-J", "login"] and "--replace" in command_in(add.text)
    assert written(remote, "taken")["config"] == str(other)
    removed(remote, "taken")


def test_one_of_the_pythons_that_were_found_is_chosen(remote: Remote, start: Start) -> None:
    second = remote.hops.work.home / "second"
    command = [sys.executable, "-m", "venv", "--without-pip", str(second)]
    subprocess.run(command, check=True, timeout=DEADLINE)
    (packages,) = second.glob("lib/python*/site-packages")
    packages.rmdir()
    packages.symlink_to(sysconfig.get_path("purelib"))  # so that it has ipykernel
    add = start("-F", str(remote.hops.ssh_config), "--gpus", "0", "--name", "chosen")
    add.answers(MACHINE, "2")
    add.answers(PYTHON, "2")
    assert add.end() == 0, add.text
    assert f"2  {second}/bin/python (" in add.text
    assert written(remote, "chosen")["python"] == f"{second}/bin/python"
    removed(remote, "chosen")
    shutil.rmtree(second)


def test_where_no_python_has_ipykernel_an_environment_is_offered(
    remote: Remote, start: Start, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    command = [sys.executable, "-m", "venv", "--without-pip", str(bare)]
    subprocess.run(command, check=True, timeout=DEADLINE)
    add = start("-F", str(remote.hops.ssh_config), "--python", f"{bare}/bin/python", "--name", "none")
    add.answers(MACHINE, "2")
    add.answers("whose jobs have GPUs?", "y")  # a login node mostly has no ipykernel either
    add.answers(GPUS, "1")
    assert add.end() == 1
    assert "has no ipykernel" in add.text and "An environment with ipykernel will be made there." in add.text
    assert {"--create-env", "--slurm"} <= set(command_in(add.text))


def test_the_end_of_the_input_ends_it(remote: Remote, start: Start) -> None:
    add = start("-F", str(remote.hops.ssh_config))
    add.until(MACHINE)
    add.send_end_of_input()
    assert add.end() == 130


def test_without_a_terminal_it_says_what_is_missing(remote: Remote) -> None:
    done = remote.program("add")
    assert done.returncode == 2 and "Give DESTINATION" in done.stderr
    assert COMMAND in remote.program("add", "--help").stdout
