"""The exit status of commands where one of two nodes cannot be asked: 1, with what the other one answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cells import run, started
from remote import Remote
from sshd import free_port
from waiting import DEADLINE

from jupyter_gpu_kernel import kernelspecs

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


@pytest.fixture(scope="module")
def dead(remote: Remote) -> Iterator[str]:
    """A kernelspec that leads nowhere; its hop."""
    hop = f"127.0.0.1:{free_port()}"
    remote.write("dead", route=[hop])
    yield hop
    kernelspecs.remove("dead")


def program(remote: Remote, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", *words]
    env = remote.program_environment()
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE)


@pytest.mark.parametrize("verb", ["ps", "gpus"])
def test_a_list_is_printed_beside_the_error(remote: Remote, dead: str, verb: str) -> None:
    with started(remote, "cpu") as (_, client):
        assert run(client, "1").reply["status"] == "ok"
        text, data = program(remote, verb), program(remote, verb, "--json")
    rows = json.loads(data.stdout)
    assert [row["error"]["hop"] for row in rows if "error" in row] == [dead]
    assert any("error" not in row for row in rows)
    for done in (text, data):
        assert done.returncode == 1 and dead in done.stderr and "Traceback" not in done.stderr
    assert len(text.stdout.splitlines()) > 1


def test_check_and_login_are_0_only_where_all_went_well(remote: Remote, dead: str) -> None:
    for verb, name, status in (
        ("check", "cpu", 0),
        ("check", "dead", 1),
        ("login", "cpu", 0),
        ("login", "dead", 1),
    ):
        done = program(remote, verb, name)
        assert done.returncode == status, (verb, name, done)
        assert (dead in done.stderr) == bool(status)


def test_what_is_not_there_cannot_be_logged_or_stopped(remote: Remote, dead: str) -> None:
    """Nor can it be known where a node is silent."""
    for words in (
        ["logs", "nope"],
        ["stop", "nope"],
        ["stop", "--leftovers"],
        ["stop", "--all"],
        ["attach", "nope"],
    ):
        done = program(remote, *words)
        assert done.returncode == 1 and dead in done.stderr, (words, done)
    kernelspecs.remove("dead")
    try:
        for words in (["logs", "nope"], ["stop", "nope"], ["attach", "nope"]):
            done = program(remote, *words)
            assert done.returncode == 1 and "a kernel nope" in done.stderr, (words, done)
        assert program(remote, "stop", "--leftovers").returncode == 0
    finally:
        remote.write("dead", route=[dead])
