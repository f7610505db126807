"""The owners of sockets that nobody answers for, as the system tells them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import Iterator

import pytest
from gpu_names import new_uuid
from leases import read_leases, take_lease
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.gpus.sharing import socket_owner
from jupyter_gpu_kernel.agent.gpus.sharing.lease import PREFIX
from jupyter_gpu_kernel.agent.gpus.sharing.socket_owner import (
    find_owners,
    find_process,
    query_uid,
    rows,
)
from jupyter_gpu_kernel.agent.system.agent_runtime import Owner

SQUATTER = r"""
import os, socket, sys
os.setgroups([])
os.setuid(61235)
listener = socket.socket(socket.AF_UNIX)
listener.bind("\0jupyter-gpu-kernel/lease/" + sys.argv[1])
clients = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) for _ in range(3)]
if sys.argv[2] == "full":
    listener.listen(0)
    for client in clients:
        client.connect_ex(listener.getsockname())
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def gpu() -> str:
    """A UUID that no other test run has."""
    return new_uuid()


@contextlib.contextmanager
def squatter(gpu: str, how: str) -> Iterator[int]:
    """A process of another user that has a lease's name, and accepts no connection."""
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    command = [sys.executable, "-c", SQUATTER, gpu, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"up\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("how", ["bound", "full"])
def test_a_lease_that_nobody_answers_for_is_named_by_its_uid(gpu: str, how: str) -> None:
    with squatter(gpu, how):
        holder = read_leases([gpu], timeout=0.05)[gpu]
        assert (holder.uid, holder.pid, holder.answers) == (61235, 0, False)
        assert str(holder) == "leased by uid 61235, which does not answer"
        assert take_lease(gpu, {"id": "ab12"}) is None
    assert read_leases([gpu], timeout=0.05) == {}


def test_ones_own_is_named_by_its_process(gpu: str) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("\0" + PREFIX + gpu)
        assert find_owners(RUNTIME, PREFIX, [gpu, "GPU-none"]) == {gpu: Owner(os.getpid(), os.getuid())}
        words = str(read_leases([gpu], timeout=0.05)[gpu])
    assert words == f"leased by your process {os.getpid()}, which does not answer"
    assert find_owners(RUNTIME, PREFIX, [gpu]) == {}


def test_a_socket_that_only_shows_the_name_is_not_its_owner(gpu: str) -> None:
    name = "\0" + PREFIX + gpu
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(name)
        listener.listen(1)
        client.connect(name)
        accepted = listener.accept()[0]
    with accepted:
        assert [row.connected for row in rows(RUNTIME, name[1:].encode())] == [True]
        assert find_owners(RUNTIME, PREFIX, [gpu]) == {}


def test_only_so_many_sockets_are_read(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may have a million."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{PREFIX}{gpu}")
        name = f"{PREFIX}{gpu}".encode()
        assert [row.name for row in rows(RUNTIME, name)] == [name]
        monkeypatch.setattr(socket_owner, "_MOST_SOCKETS", 0)
        assert not list(rows(RUNTIME, name))


def test_an_inode_that_has_another_name_by_now(gpu: str) -> None:
    name = (PREFIX + gpu).encode()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(b"\0" + name)
        inode = os.fstat(bound.fileno()).st_ino
        assert query_uid(inode, name) == os.getuid()
        assert query_uid(inode, name[:-1]) is None
        assert find_process(inode) == os.getpid()
    assert find_process(inode) == 0
