"""The script that makes environments on a node: really run, with small wheels of the same names."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
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

    def __init__(self, verb: str, request: Dict[str, Any]) -> None:
        words = command(sys.executable, verb, {"stdin": 0, **request})
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


def request(path: Path, wheels: List[Path], **more: Any) -> Dict[str, Any]:
    listed = [
        {"name": one.name, "size": one.stat().st_size, "sha256": hashlib.sha256(one.read_bytes()).hexdigest()}
        for one in wheels
    ]
    given = {"path": str(path), "wheels": listed, "packages": ["ipykernel", "zmq"], "mib": 1, "id": "a" * 32}
    return {**given, "venv": True, "uv": "", **more}


def create(path: Path, wheels: List[Path], **more: Any) -> Any:
    with Run("create", request(path, wheels, **more)) as run:
        assert run.until("send", "problem") is None
        for one in wheels:
            run.stdin.write(one.read_bytes())
        run.stdin.flush()
        return run.until("answer", "problem")


@pytest.fixture(scope="module")
def made(wheels: List[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment, for which a uv that fails was tried first."""
    folder = tmp_path_factory.mktemp("made")
    uv = folder / "uv"
    uv.write_text("#!/bin/sh\necho unknown option >&2\nexit 2\n")
    uv.chmod(0o755)
    path = folder / "new" / "env"
    answer = create(path, wheels, uv=str(uv))
    assert answer["tool"] == "venv" and answer["python"] == str(path / "bin" / "python"), answer
    assert {name for name, _ in answer["packages"]} == {"ipykernel", "pip", "pyzmq", "zmq"} - {"pip"}
    return path


def test_what_is_made_is_ours_and_private(made: Path) -> None:
    assert ask("plan", path=str(made), mib=1)["state"] == "ours"
    assert made.stat().st_mode & 0o777 == 0o700
    assert {one.name for one in made.iterdir()} >= {"bin", "lib", "pyvenv.cfg", RECORD}
    assert not [one for one in made.iterdir() if one.name.startswith(".jupyter")]
    status = ask("status", path=str(made))
    assert status["id"] == "a" * 32 and status["added"] == [] and status["users"] == []


def test_a_copy_a_changed_record_and_a_link_are_not_ours(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    text = (made / RECORD).read_text()
    (copy / RECORD).write_text(text)
    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / RECORD).write_text(text.replace(str(made), str(forged)))
    link = tmp_path / "link"
    link.symlink_to(made)
    for path in (copy, forged, link):
        assert ask("plan", path=str(path), mib=1)["code"] == "foreign"
        assert ask("status", path=str(path))["id"] == ""
        assert ask("remove", path=str(path), id="a" * 32)["code"] == "not_ours"
        assert path.exists()
    assert ask("remove", path=str(made), id="b" * 32)["code"] == "not_ours"


def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path, wheels: List[Path]) -> None:
    (tmp_path / "data.txt").write_text("mine")
    with Run("create", request(tmp_path, wheels)) as run:
        assert run.until("send", "problem")["code"] == "foreign"
    assert [one.name for one in tmp_path.iterdir()] == ["data.txt"]


@pytest.mark.parametrize("fault", ["cut", "changed"])
def test_a_broken_transfer_leaves_nothing(tmp_path: Path, wheels: List[Path], fault: str) -> None:
    data = b"".join(one.read_bytes() for one in wheels)
    with Run("create", request(tmp_path / "a" / "env", wheels)) as run:
        assert run.until("send", "problem") is None
        with contextlib.suppress(BrokenPipeError):  # it reads no further
            run.stdin.write(data[:-100] if fault == "cut" else b"x" + data[1:])
            run.stdin.close()
        assert run.until("answer", "problem")["code"] == "transfer"
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_is_stored_in_the_environment_only(tmp_path: Path, wheels: List[Path]) -> None:
    given = {
        **request(tmp_path / "env", wheels),
        "wheels": [{"name": "../../x.whl", "size": 1, "sha256": ""}],
    }
    with Run("create", given) as run:
        assert run.until("send", "problem") is None
        with contextlib.suppress(BrokenPipeError):
            run.stdin.write(b"x")
            run.stdin.close()
        assert run.until("answer", "problem")["code"] == "transfer"
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_no_link_to_another_file(tmp_path: Path, wheels: List[Path]) -> None:
    mine, path = tmp_path / "mine", tmp_path / "env"
    mine.write_text("mine")
    path.mkdir()
    (path / UNFINISHED).symlink_to(mine)
    with Run("create", request(path, wheels)) as run:
        assert run.until("send", "problem") is not None
    assert mine.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to any group")
def test_a_group_that_can_write_there_is_named(tmp_path: Path) -> None:
    assert ask("plan", path=str(tmp_path / "env"), mib=1)["group"] == ""
    os.chown(tmp_path, -1, 12345)
    tmp_path.chmod(0o770)
    assert ask("plan", path=str(tmp_path / "env"), mib=1)["group"] == "12345"


def test_two_at_once_and_what_a_killed_one_left(tmp_path: Path, wheels: List[Path]) -> None:
    path = tmp_path / "env"
    with Run("create", request(path, wheels)) as first:
        assert first.until("send", "problem") is None
        assert ask("plan", path=str(path), mib=1)["code"] == "busy"
        with Run("create", request(path, wheels, id="b" * 32)) as second:
            assert second.until("send", "problem")["code"] == "busy"
        first.process.send_signal(signal.SIGKILL)
    assert (path / UNFINISHED).exists() and ask("plan", path=str(path), mib=1)["state"] == "unfinished"
    assert ask("status", path=str(path))["id"] == ""
    with Run("create", request(path, wheels)) as run:
        assert run.until("send", "problem") is None
        run.process.send_signal(signal.SIGHUP)  # as when the connection ends
    assert not path.exists()


def test_the_same_request_over_another_connection_ends_the_earlier_try(
    tmp_path: Path, wheels: List[Path]
) -> None:
    """As the hub repeats it, when a connection has become silent."""
    with Run("create", request(tmp_path / "env", wheels)) as first:
        assert first.until("send", "problem") is None
        with Run("create", request(tmp_path / "env", wheels)) as second:
            assert second.until("send", "problem") is None
            assert first.process.wait(DEADLINE) == 128 + signal.SIGTERM
            assert (tmp_path / "env" / UNFINISHED).exists()


def test_packages_that_cannot_be_installed(tmp_path: Path, wheels: List[Path]) -> None:
    problem = create(tmp_path / "env", wheels, packages=["ipykernel", "nonesuch"])
    assert problem["code"] == "install" and "nonesuch" in problem["text"]
    assert list(tmp_path.iterdir()) == []


def test_packages_that_do_not_start(tmp_path: Path, wheels: List[Path]) -> None:
    uv = tmp_path / "uv"
    venv = f'shift $(($# - 1)); exec {shlex.quote(sys.executable)} -I -m venv --without-pip "$1"'
    uv.write_text(f"#!/bin/sh\n[ $1 = venv ] || exit 0  # installs nothing\n{venv}\n")
    uv.chmod(0o755)
    assert create(tmp_path / "env", wheels, uv=str(uv))["code"] == "broken"
    assert list(tmp_path.iterdir()) == [uv]


def test_no_space_and_folders_that_anybody_can_write_to(tmp_path: Path) -> None:
    assert ask("plan", path=str(tmp_path / "env"), mib=10**9)["code"] == "space"
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    assert ask("plan", path=str(open_folder / "env"), mib=1)["code"] == "open"
    assert ask("plan", path=str(tmp_path / "env"), mib=1)["state"] == "new"
    assert list(tmp_path.iterdir()) == [open_folder] and list(open_folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert ask("plan", path=str(tmp_path / "env"), mib=1)["code"] == "write"


def test_what_is_in_use_stays_and_what_is_not_is_removed(made: Path) -> None:
    added = made / "lib" / f"python3.{sys.version_info[1]}" / "site-packages" / "torch-2.9.0.dist-info"
    added.mkdir()
    assert ask("status", path=str(made))["added"] == [["torch", "2.9.0"]]
    words = [str(made / "bin" / "python"), "-c", "print(flush=True); input()", "serve", "abc123"]
    user = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert user.stdin is not None and user.stdout is not None
    with user.stdin, user.stdout:
        user.stdout.readline()
        assert [one["kernel"] for one in ask("status", path=str(made))["users"]] == ["abc123"]
        problem = ask("remove", path=str(made), id="a" * 32, patience=0)
        assert problem == {"code": "in_use", "text": "kernel abc123"}
        assert made.exists()
        user.stdin.write(b"\n")
        user.stdin.flush()
        user.wait(DEADLINE)
    assert ask("remove", path=str(made), id="a" * 32)["path"] == str(made)
    assert not list(made.parent.iterdir())


def test_one_that_was_made_on_another_node_is_not_replaced(tmp_path: Path, wheels: List[Path]) -> None:
    """It may work there, although its Python is not on this node."""
    path = tmp_path / "env"
    path.mkdir()
    for node, state in (("elsewhere", "elsewhere"), (os.uname().nodename, "broken")):
        record = {"id": "a" * 32, "path": str(path), "python": "/usr/bin/python3", "node": node}
        digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
        (path / RECORD).write_text(json.dumps({**record, "sum": digest}))
        answer = ask("plan", path=str(path), mib=1)
        assert answer.get("state", answer.get("code")) == state
    with Run("create", request(path, wheels)) as run:
        assert run.until("send", "problem") is None
        assert not (path / RECORD).exists()
