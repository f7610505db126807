"""The script that makes environments on a node: really run, with small wheels of the same names."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, List

import pytest
from waiting import DEADLINE
from wheelhouse import make_wheel, repack

from jupyter_gpu_kernel.hub.virtual_env.node_script import command

MARK = "=== jupyter-gpu-kernel environment "
RECORD = "jupyter-gpu-kernel-environment.json"
UNFINISHED = ".jupyter-gpu-kernel-unfinished"


class Run:
    """One run of the script."""

    def __init__(self, verb: str, request: Dict[str, Any], python: str = sys.executable) -> None:
        words = command(python, verb, {"stdin": 0, **request})
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def until(self, *kinds: str) -> Any:
        """The value of the first line of one of these kinds; others are skipped."""
        for line in self.stdout:
            kind, _, value = line.decode()[len(MARK) :].partition(" ")
            if kind in kinds:
                return json.loads(value)
        raise AssertionError(f"the script ended with {self.process.wait(DEADLINE)}")

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.process.wait(DEADLINE)


def ask(verb: str, **request: Any) -> Any:
    """The answer, or the problem."""
    with Run(verb, request) as run:
        return run.until("answer", "problem")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> List[Path]:
    folder = tmp_path_factory.mktemp("wheels")
    repack(folder, "pip")
    kernelapp = "import sys; __path__ = []; sys.modules['ipykernel.kernelapp'] = sys"
    make_wheel(folder, "ipykernel", "7.0", ["pyzmq"], code=kernelapp)
    make_wheel(folder, "pyzmq", "27.0")
    make_wheel(folder, "zmq", "1.0")  # the module; a wheel of the tests has one with its own name
    return sorted(folder.iterdir())


def packed(wheels: List[Path]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for wheel in wheels:
            archive.write(str(wheel), wheel.name)
    return data.getvalue()


def request(path: Path, data: bytes, **more: Any) -> Dict[str, Any]:
    given = {"path": str(path), "size": len(data)}
    packages = [["ipykernel", "7.0"], ["pyzmq", "27.0"], ["zmq", "1.0"], ["pip", "1"]]
    return {**given, "wanted": ["ipykernel", "zmq"], "packages": packages, **more}


def create(path: Path, data: bytes, python: str = sys.executable, **more: Any) -> Any:
    with Run("create", request(path, data, **more), python) as run:
        assert run.until("send", "problem") is None
        run.stdin.write(data)
        run.stdin.flush()
        return run.until("answer", "problem")


@pytest.fixture(scope="module")
def data(wheels: List[Path]) -> bytes:
    return packed(wheels)


@pytest.fixture(scope="module")
def made(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "new" / "env"
    assert create(path, data)["mib"] > 0
    return path


def record(path: Path) -> Dict[str, Any]:
    return dict(json.loads((path / RECORD).read_text()))


def test_what_is_made_is_ours_and_private(made: Path) -> None:
    plan = ask("plan", path=str(made))
    assert plan["state"] == "ours" and plan["packages"] == record(made)["packages"]
    assert made.stat().st_mode & 0o777 == 0o700
    assert {one.name for one in made.iterdir()} >= {"bin", "lib", "pyvenv.cfg", RECORD}
    assert not [one for one in made.iterdir() if one.name.startswith(".jupyter")]
    status = ask("status", path=str(made))
    assert status["id"] == record(made)["id"] and status["added"] == [] and status["users"] == []
    with Run("create", request(made, b"")) as run:
        assert run.until("send", "problem")["code"] == "busy", "another process has made it meanwhile"
    assert ask("plan", path=str(made))["state"] == "ours"


def test_a_copy_and_a_link_are_not_ours(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / RECORD).write_text((made / RECORD).read_text())
    link = tmp_path / "link"
    link.symlink_to(made)
    env_id = record(made)["id"]
    for path in (copy, link):
        assert ask("plan", path=str(path))["code"] == "foreign"
        assert ask("status", path=str(path))["id"] == ""
        assert ask("remove", path=str(path), id=env_id)["code"] == "not_ours"
        assert path.exists()
    assert ask("remove", path=str(made), id="b" * 32)["code"] == "not_ours"


def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "data.txt").write_text("mine")
    with Run("create", request(tmp_path, data)) as run:
        assert run.until("send", "problem")["code"] == "foreign"
    assert [one.name for one in tmp_path.iterdir()] == ["data.txt"]


def test_a_transfer_that_is_cut_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    with Run("create", request(tmp_path / "a" / "env", data)) as run:
        assert run.until("send", "problem") is None
        run.stdin.write(data[:-100])
        run.stdin.close()
        assert run.until("answer", "problem")["code"] == "make"
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_is_stored_in_the_environment_only(tmp_path: Path) -> None:
    evil = io.BytesIO()
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("../../x.whl", "")
        archive.writestr("pip-1-py3-none-any.whl", "")
    assert create(tmp_path / "env", evil.getvalue())["code"] == "make"
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_no_link_to_another_file(tmp_path: Path, data: bytes) -> None:
    mine, path = tmp_path / "mine", tmp_path / "env"
    mine.write_text("mine")
    path.mkdir()
    (path / UNFINISHED).symlink_to(mine)
    with Run("create", request(path, data)) as run:
        assert run.until("send", "problem") is not None
    assert mine.read_text() == "mine"


def test_two_at_once_and_what_a_killed_one_left(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "env"
    with Run("create", request(path, data)) as first:
        assert first.until("send", "problem") is None
        assert ask("plan", path=str(path))["code"] == "busy"
        with Run("create", request(path, data)) as second:
            assert second.until("send", "problem")["code"] == "busy"
        first.process.send_signal(signal.SIGKILL)
    assert (path / UNFINISHED).exists() and ask("plan", path=str(path))["state"] == "left"
    assert ask("status", path=str(path))["id"] == ""
    with Run("create", request(path, data)) as run:
        assert run.until("send", "problem") is None
        run.process.send_signal(signal.SIGHUP)  # as when the connection ends
    assert not path.exists()


def test_packages_that_cannot_be_installed(tmp_path: Path, data: bytes) -> None:
    problem = create(tmp_path / "env", data, wanted=["ipykernel", "nonesuch"])
    assert problem["code"] == "make" and "nonesuch" in problem["text"]
    assert list(tmp_path.iterdir()) == []


def test_packages_that_do_not_start(tmp_path: Path, data: bytes) -> None:
    problem = create(tmp_path / "env", data, wanted=["zmq"])
    assert problem["code"] == "start" and "ipykernel" in problem["text"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_file_system_or_quota_that_is_full_while_packages_are_installed(
    tmp_path: Path, wheels: List[Path], number: int
) -> None:
    """With a pip that ends as the real one does then."""
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        text = f"ERROR: Could not install packages due to an OSError: [Errno {number}] {os.strerror(number)}"
        archive.writestr("pip/__main__.py", f"raise SystemExit({text!r})")
    others = [one for one in wheels if not one.name.startswith("pip-")]
    pip = tmp_path / "pip-1-py3-none-any.whl"
    pip.write_bytes(wheel.getvalue())
    problem = create(tmp_path / "a" / "env", packed([*others, pip]))
    assert problem["code"] == "write" and os.strerror(number) in problem["text"]
    assert list(tmp_path.iterdir()) == [pip]


def test_folders_that_anybody_can_write_to(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    assert ask("plan", path=str(open_folder / "env"))["code"] == "open"
    assert ask("plan", path=str(tmp_path / "env"))["state"] == "new"
    assert list(tmp_path.iterdir()) == [open_folder] and list(open_folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with Run("create", request(tmp_path / "env", b"")) as run:
        assert run.until("send", "problem")["code"] == "write"


class User:
    """A process that runs with the environment's Python."""

    def __init__(self, path: Path, *words: str) -> None:
        program = [str(path / "bin" / "python"), "-c", "print(flush=True); input()", *words]
        self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> subprocess.Popen[bytes]:
        assert self.process.stdout is not None
        self.process.stdout.readline()
        return self.process

    def __exit__(self, *error: object) -> None:
        self.process.communicate(b"\n", timeout=DEADLINE)


def test_what_is_in_use_stays_and_what_is_not_is_removed(made: Path) -> None:
    added = made / "lib" / f"python3.{sys.version_info[1]}" / "site-packages" / "torch-2.9.0.dist-info"
    added.mkdir()
    assert ask("status", path=str(made))["added"] == [["torch", "2.9.0"]]
    request = {"path": str(made), "id": record(made)["id"], "patience": 0}
    spare_words = ("/tmp/jupyter-gpu-kernel-0/agent-1a2b", "spare", "key")
    with User(made, *spare_words) as spare:
        with User(made, "serve", "abc123"):
            assert ask("status", path=str(made))["users"] == [{"kernel": "abc123"}]
            assert ask("remove", **request) == {"code": "in_use", "text": "kernel abc123"}
        with User(made) as other:
            problem = ask("remove", **request)
            assert problem["code"] == "in_use" and f"process {other.pid} (" in problem["text"]
        assert spare.poll() is None and made.exists()
        assert ask("remove", **{**request, "patience": DEADLINE})["mib"] > 0
        assert spare.wait(DEADLINE) == -signal.SIGTERM, "no kernel needs it any more"
    assert not list(made.parent.iterdir())


def test_one_that_was_made_on_another_node_is_not_replaced(tmp_path: Path, data: bytes) -> None:
    """It may work there, although its Python is not on this node."""
    path = tmp_path / "env"
    path.mkdir()
    for node, state in (("elsewhere", "elsewhere"), (os.uname().nodename, "left")):
        made = {"id": "a" * 32, "path": str(path), "python": "/usr/bin/python3", "node": node}
        (path / RECORD).write_text(json.dumps(made))
        answer = ask("plan", path=str(path))
        assert answer.get("state", answer.get("code")) == state
    with Run("create", request(path, data)) as run:
        assert run.until("send", "problem") is None
        assert not (path / RECORD).exists()
