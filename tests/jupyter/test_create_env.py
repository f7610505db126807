"""`add --create-env`: over two real sshd, with a Python that has no ipykernel, without a network:
with the wheels of what is installed here."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel
from remote import Remote
from waiting import DEADLINE, eventually
from wheelhouse import make_wheel, repack

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import AgentError

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


class Node:
    """The work node's home, and `add` with its words."""

    def __init__(self, remote: Remote, folder: Path) -> None:
        self.remote = remote
        self.folder = folder
        self.home = remote.hops.work.home
        self.envs = self.home / ".local" / "share" / "jupyter-gpu-kernel-envs"
        self.bare = folder / "bare"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(self.bare)], check=True, timeout=DEADLINE
        )
        self.python = self.bare / "bin" / "python"
        self.setup = f"echo noise; read -r word; export PATH={shlex.quote(str(self.python.parent))}:$PATH"
        """A line that brings this Python. What it prints and reads does no harm."""

    def add(self, *words: str, name: str = "made") -> subprocess.CompletedProcess[str]:
        way = ["work", "-F", str(self.remote.hops.ssh_config), "--gpus", "0", "--name", name]
        return self.remote.program("add", *way, *words)

    def made(self, *words: str, name: str = "made") -> dict[str, Any]:
        """What `add --create-env` prints."""
        done = self.add("--create-env", "--yes", "--json", *words, name=name)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def refused(self, *words: str) -> str:
        done = self.remote.program(*words)
        assert done.returncode == 1 and done.stdout == "", done
        return done.stderr


@pytest.fixture(scope="module")
def node(remote: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    house = tmp_path_factory.mktemp("house")
    repack(house, "ipykernel", "pip")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_FIND_LINKS", str(house))
        patch.setenv("PIP_NO_INDEX", "1")
        yield Node(remote, tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def added(node: Node) -> dict[str, Any]:
    return node.made("--setup", node.setup)


def test_the_error_without_it_names_it(node: Node) -> None:
    done = node.add("--python", str(node.python))
    assert done.returncode == 1
    assert "has no ipykernel" in done.stderr and "--create-env" in done.stderr


def test_nobody_is_asked_in_a_script(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repack(tmp_path, "pip")
    make_wheel(tmp_path, "ipykernel", "7.0", ["pyzmq"])
    make_wheel(tmp_path, "pyzmq", "27.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    done = node.add("--create-env", "--python", str(node.python), "--env-dir", "~/envs/ml")
    assert done.returncode == 1 and "--yes" in done.stderr
    for word in (
        str(node.home / "envs" / "ml"),
        str(node.python),
        "ipykernel ",
        "pyzmq ",
        "MiB are sent from here",
    ):
        assert word in done.stdout
    assert not (node.home / "envs").exists()


def test_the_kernelspec_uses_the_environment(node: Node, added: dict[str, Any]) -> None:
    path = node.envs / "made"
    assert added["settings"]["env_dir"] == str(path)
    assert added["settings"]["python"] == added["probe"]["python"]["path"] == str(path / "bin" / "python")
    (environment,) = added["environments"]
    assert environment["created"] and environment["base"].startswith(f"{node.bare}/bin/python")
    assert {"ipykernel", "pip", "pyzmq"} <= {name for name, _ in environment["packages"]}


def test_it_is_used_again_and_its_removal_is_the_users(node: Node, added: dict[str, Any]) -> None:
    again = node.made("--setup", node.setup, "--replace")
    assert again["settings"] == added["settings"]
    assert [one["created"] for one in again["environments"]] == [False]
    manager, client = start_new_kernel(kernel_name="made", startup_timeout=DEADLINE)
    client.stop_channels()
    manager.shutdown_kernel(now=False)
    path = added["settings"]["env_dir"]
    assert f"the environment {path} stays on work; delete it" in node.remote.program("remove", "made").stdout
    assert Path(path).exists()
    node.remote.nothing_left()


class Left(Exception):
    """The user has pressed Ctrl-C."""


def test_what_a_client_has_begun_is_completed_when_it_leaves(node: Node) -> None:
    route = {"route": list(node.remote.hops.route), "config": str(node.remote.hops.ssh_config), "gpus": 0}
    settings = {**route, "python": str(node.python)}
    archive = shutil.make_archive(str(node.folder / "wheels"), "zip", os.environ["PIP_FIND_LINKS"])

    def plan() -> dict[str, Any]:
        return dict(hub.call("plan_environment", timeout=DEADLINE, name="left", settings=settings))

    def is_complete() -> bool:
        try:
            return plan()["state"] == "ours"
        except AgentError as error:
            assert "is being made by another process" in error.cause
            return False

    def leave(event: dict[str, Any]) -> None:
        if event["step"].startswith("sending"):
            raise Left

    with HubClient() as hub:
        packages = [["ipykernel", "7"]]
        asked = {"plan": plan(), "archive": archive, "wanted": ["ipykernel"], "packages": packages}
        with HubClient() as client, pytest.raises(Left):
            client.call("create_environment", timeout=DEADLINE, settings=settings, progress=leave, **asked)
        eventually(is_complete, "the environment is made")
