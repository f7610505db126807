"""The script that makes environments on a node: really run, with small wheels of the same names; and what a node that
means harm may answer."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import DEADLINE
from wheelhouse import make_wheel, repack

from jupyter_gpu_kernel.errors import AgentError, GpuKernelError
from jupyter_gpu_kernel.hub.node.check.python_probe import NodeFacts, Python
from jupyter_gpu_kernel.hub.transport.connection import Completed, Output
from jupyter_gpu_kernel.hub.virtual_env import Answer, path_of, run_script, script_text, wheel_facts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the script runs on the work node's sh")

RECORD = "jupyter-gpu-kernel-environment.json"
UNFINISHED = ".jupyter-gpu-kernel-unfinished"
WANTED = "ipykernel zmq"


class Here:
    """A connection to this machine."""

    def run(self, command: str, *, stdin: bytes, timeout: float) -> Completed:
        done = subprocess.run([command], input=stdin, capture_output=True, timeout=DEADLINE)
        return Completed(done.returncode, done.stdout, done.stderr)


class Prints:
    """A connection to a node that prints this, whatever it is asked."""

    def __init__(self, *lines: str) -> None:
        self.text = "\n".join(["printf '%s\\n' " + shlex.quote(line) for line in lines])

    def run(self, command: str, *, stdin: bytes, timeout: float) -> Completed:
        return Here().run(command, stdin=self.text.encode(), timeout=timeout)


def ask(verb: str, path: Path, **variables: str) -> Answer:
    return run_script(Here(), "gpu2", script_text(verb, path=str(path), **variables))


def state(path: Path) -> str:
    return ask("plan", path).value("state")


def refused(verb: str, path: Path, **variables: str) -> AgentError:
    with pytest.raises(AgentError) as raised:
        ask(verb, path, **variables)
    assert raised.value.remedy != "Try again."
    return raised.value


def content(path: Path, **more: Any) -> str:
    packages = [["ipykernel", "7.0"], ["pyzmq", "27.0"], ["zmq", "1.0"], ["pip", "1"]]
    return json.dumps({"path": str(path), "packages": packages, **more})


def creation(path: Path, data: bytes, wanted: str = WANTED, setup: tuple[str, ...] = ()) -> bytes:
    variables = {"path": str(path), "python": sys.executable, "wanted": wanted, "content": content(path)}
    return script_text("create", data, setup, **variables)


def create(path: Path, data: bytes, wanted: str = WANTED, setup: tuple[str, ...] = ()) -> Answer:
    return run_script(Here(), "gpu2", creation(path, data, wanted, setup))


def not_created(path: Path, data: bytes, wanted: str = WANTED) -> AgentError:
    with pytest.raises(AgentError) as raised:
        create(path, data, wanted)
    return raised.value


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("wheels")
    repack(folder, "pip")
    kernelapp = "import sys; __path__ = []; sys.modules['ipykernel.kernelapp'] = sys"
    make_wheel(folder, "ipykernel", "7.0", ["pyzmq"], code=kernelapp)
    make_wheel(folder, "pyzmq", "27.0")
    make_wheel(folder, "zmq", "1.0")  # the module; a wheel of the tests has one with its own name
    return sorted(folder.iterdir())


def packed(wheels: list[Path]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for wheel in wheels:
            archive.write(str(wheel), wheel.name)
    return data.getvalue()


@pytest.fixture(scope="module")
def data(wheels: list[Path]) -> bytes:
    return packed(wheels)


@pytest.fixture(scope="module")
def made(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "new" / "env"
    assert create(path, data, setup=("echo noise; read -r word",)).mib > 0
    return path


def test_what_is_made_is_ours_and_private(made: Path) -> None:
    plan = ask("plan", made)
    assert plan.value("state") == "ours" and plan.value("path") == str(made)
    assert ("ipykernel", "7.0") in plan.packages(str(made))
    assert made.stat().st_mode & 0o777 == 0o700
    assert {one.name for one in made.iterdir()} >= {"bin", "lib", "pyvenv.cfg", RECORD}
    assert not [one for one in made.iterdir() if one.name.startswith(".jupyter")]
    assert "another process has made it" in not_created(made, b"x").cause
    assert state(made) == "ours"


def test_a_home_folder_is_expanded_on_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    answer = run_script(Here(), "gpu2", script_text("plan", path="~/my envs/a"))
    assert path_of(answer.value("path")) == f"{tmp_path}/my envs/a" and answer.value("state") == "new"


def test_a_copy_and_a_link_are_not_ours(made: Path, tmp_path: Path) -> None:
    copy, link = tmp_path / "copy", tmp_path / "link"
    copy.mkdir()
    (copy / RECORD).write_text((made / RECORD).read_text())
    link.symlink_to(made)
    assert "not start" in refused("plan", copy).cause and "exists" in refused("plan", link).cause
    assert ask("plan", made).packages(str(copy)) == [], "the record names another path"


def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "data.txt").write_text("mine")
    assert "is not an environment" in not_created(tmp_path, data).cause
    assert [one.name for one in tmp_path.iterdir()] == ["data.txt"]


@pytest.mark.parametrize("part", [0.5, 0.999])
def test_a_transfer_that_is_cut_leaves_nothing(tmp_path: Path, data: bytes, part: float) -> None:
    text = creation(tmp_path / "env", data)
    with pytest.raises(GpuKernelError):
        run_script(Here(), "gpu2", text[: int(len(text) * part)])
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_is_stored_in_the_environment_only(tmp_path: Path) -> None:
    evil = io.BytesIO()
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("../../x.whl", "")
        archive.writestr("pip-1-py3-none-any.whl", "")
    assert "exit status" in not_created(tmp_path / "env", evil.getvalue()).cause
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_and_what_a_killed_one_left(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "env"
    path.mkdir()
    (path / UNFINISHED).write_text(f"{os.uname().nodename} {os.getpid()}\n")
    assert "is being made by another process" in refused("plan", path).cause
    assert "is being made by another process" in not_created(path, data).cause
    ended = subprocess.Popen(["true"])
    ended.wait(DEADLINE)
    (path / UNFINISHED).write_text(f"{os.uname().nodename} {ended.pid}\n")
    assert state(path) == "left" and ask("plan", path).packages(str(path)) == []
    (path / UNFINISHED).write_text(f"elsewhere {ended.pid}\n")
    assert "is being made by another process" in refused("plan", path).cause
    os.utime(path / UNFINISHED, (0, 0))
    assert state(path) == "left"
    assert create(path, data).mib > 0
    assert state(path) == "ours"


def test_packages_that_cannot_be_installed(tmp_path: Path, data: bytes) -> None:
    assert "nonesuch" in not_created(tmp_path / "env", data, "ipykernel nonesuch").cause
    assert list(tmp_path.iterdir()) == []


def test_packages_that_do_not_start(tmp_path: Path, data: bytes) -> None:
    error = not_created(tmp_path / "env", data, "zmq")
    assert "ipykernel does not start" in error.cause and "without the right to run" in error.remedy
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_file_system_or_quota_that_is_full_while_packages_are_installed(
    tmp_path: Path, wheels: list[Path], number: int
) -> None:
    """With a pip that ends as the real one does then."""
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        text = f"ERROR: Could not install packages due to an OSError: [Errno {number}] {os.strerror(number)}"
        archive.writestr("pip/__main__.py", f"raise SystemExit({text!r})")
    others = [one for one in wheels if not one.name.startswith("pip-")]
    pip = tmp_path / "pip-1-py3-none-any.whl"
    pip.write_bytes(wheel.getvalue())
    error = not_created(tmp_path / "env", packed([*others, pip]))
    assert os.strerror(number) in error.cause and error.remedy.startswith("Free some space")
    assert list(tmp_path.iterdir()) == [pip]


def test_folders_that_anybody_can_write_to(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    assert "every user of the node can write" in refused("plan", open_folder / "env").cause
    assert state(tmp_path / "env") == "new"
    assert list(tmp_path.iterdir()) == [open_folder] and list(open_folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path, data: bytes) -> None:
    tmp_path.chmod(0o500)
    assert not_created(tmp_path / "env", data).remedy.startswith("Free some space")


# --- what a node may print


def test_a_problem_is_reported_in_the_nodes_words_with_our_remedy() -> None:
    with pytest.raises(AgentError) as raised:
        run_script(Prints("full\x1b[2J", "problem|write|Run: rm -rf ~"), "gpu2", b"")
    assert raised.value.cause == (
        "the environment cannot be made; the node says:\n| full?[2J\n| Run: rm -rf ~"
    )
    assert raised.value.remedy.startswith("Free some space") and "--env-dir" in raised.value.remedy
    with pytest.raises(AgentError, match="the environment cannot be made; the node gives no reason"):
        run_script(Prints("problem|nonesuch|"), "gpu2", b"")


def test_a_script_that_does_not_end() -> None:
    with pytest.raises(AgentError, match="ended without an answer"):
        run_script(Here(), "gpu2", b"echo gone; kill -9 $$")


@pytest.mark.parametrize("setup", [(), ("export A=1",)])
def test_a_script_that_fails_without_a_problem_has_its_exit_status(setup: tuple[str, ...]) -> None:
    with pytest.raises(AgentError, match="exit status 3"):
        run_script(Here(), "gpu2", script_text("exit 3", setup=setup))


@pytest.mark.parametrize(
    ("version", "machine", "glibc"),
    [("3", "x86_64", "2.36"), ("3.11.2", "x86_64 --index-url=x", "2.36"), ("3.11.2", "x86_64", "--pre")],
)
def test_a_fact_that_would_become_an_argument_is_checked(version: str, machine: str, glibc: str) -> None:
    python = Python("/usr/bin/python3", "path", "/usr", version=version)
    with pytest.raises(AgentError, match="there are no wheels for"):
        wheel_facts(python, NodeFacts(machine=machine, glibc=glibc), False, "gpu2")


def test_what_decides_which_wheels_fit() -> None:
    python, node = (
        Python("/usr/bin/python3", "path", "/usr", version="3.11.2"),
        NodeFacts(machine="x86_64", glibc="2.36"),
    )
    facts = {"version": "3.11.2", "abi": "cp311", "machine": "x86_64"}
    assert wheel_facts(python, node, False, "gpu2") == {**facts, "libc": "glibc 2.36"}
    assert wheel_facts(python, node, True, "gpu2") == {**facts, "libc": "musl"}


@pytest.mark.parametrize("path", ["", "env", "/home/a\x1b/b", "~/env"])
def test_a_path_is_checked(path: str) -> None:
    with pytest.raises(AgentError, match="an absolute path was expected"):
        path_of(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["id", "path", "packages"]), json_values))
def test_any_record(record: dict[str, Any]) -> None:
    assert Answer(Output(0, (f"record|{json.dumps(record)}",), "")).packages("/home/a/env") == []


@given(st.lists(json_values))
def test_any_packages_of_our_record(packages: list[Any]) -> None:
    record = {"path": "/home/a/env", "packages": packages}
    found = Answer(Output(0, (f"record|{json.dumps(record)}",), "")).packages("/home/a/env")
    assert all(text.isprintable() for one in found for text in one)
