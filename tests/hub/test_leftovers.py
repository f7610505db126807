"""What kernels and keepers left behind: their folders, and processes that outlived them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from endings import DETACHED, STUBBORN, gone, listed, reported, started, stop
from runtimes import RUNTIME
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.agent.exit import leftovers
from jupyter_gpu_kernel.agent.exit.descendants import Descendant, end_all, find_descendants, open_gpus
from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime
from jupyter_gpu_kernel.agent.system.procfs import boot_id, start_ticks
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]


def test_a_job_that_took_keeper_and_kernel_along_has_the_reason_that_was_reported_before(node: Node) -> None:
    root = node.handlers.root
    (root.make_kernel("in-job") / "lock").touch()
    entries: list[dict[str, Any]] = [
        {"event": "start", "job": "Slurm job 17", "boot": boot_id()},
        {"event": "sigterm", "kind": "scheduler"},
        {"event": "signal", "text": "the keeper got SIGTERM and stays"},
    ]
    lines = [json.dumps({"text": "", "time": 0, **entry}) + "\n" for entry in entries]
    root.story("in-job").write_text("".join(lines))
    assert "killed with Slurm job 17" in node.story("in-job")
    assert "SIGTERM from the scheduler came before" in node.story("in-job")


def test_a_node_that_has_forgotten_all_at_its_reboot(node: Node) -> None:
    for boot, words in (
        ("another", "the node was rebooted"),
        (boot_id(), "its folder is gone"),
        ("", "no kernel"),
    ):
        with pytest.raises(Refused, match=words):
            node.handlers.open("forgotten", {"boot": boot})


def test_a_folder_without_keeper_and_kernel_tells_why_and_goes(node: Node) -> None:
    root = node.handlers.root
    for name, boot in (("rebooted", "another boot"), ("killed", boot_id())):
        (root.make_kernel(name) / "lock").touch()
        root.story(name).write_text(
            json.dumps({"event": "start", "text": "", "time": 0, "boot": boot}) + "\n"
        )
    assert not {"rebooted", "killed"} & set(listed(node))
    assert "the node was rebooted" in node.story("rebooted")
    assert "its keeper was killed" in node.story("killed")
    assert not {"rebooted", "killed"} & set(root.kernels())


def test_a_folder_of_a_keeper_that_is_starting_stays(node: Node) -> None:
    root = node.handlers.root
    folder = root.make_kernel("starting")
    found = leftovers.Leftovers(RUNTIME, root)
    holder = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('locked', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(folder / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline()
        assert not found.remove_stale("starting")
        process.communicate(b"\n")
    assert found.remove_stale("starting")
    assert not root.story("starting").exists(), "an `attach` had made the folder, and not locked it yet"


def test_a_folder_whose_lock_cannot_be_opened_stays(node: Node) -> None:
    """As on a file system without inodes, or one that can only be read: the other kernels are listed."""
    (node.handlers.root.make_kernel("strange") / "lock").mkdir()
    assert not leftovers.Leftovers(RUNTIME, node.handlers.root).remove_stale("strange")
    listed(node)


# ---------------------------------------------------------------------------------------------- leftovers


def test_what_left_the_session_ends_with_the_kernel(loop: LoopThread, link: Link, node: Node) -> None:
    with started(loop, link) as (remote, front):
        child = int(front.run(DETACHED).text)
        front.control("shutdown_request", restart=False)
        reported(remote, node)
        gone(child)
        assert f"(pid {child})" in node.story(remote.kernel_id)


def test_a_restart_ends_what_the_old_one_left_and_nothing_else(
    loop: LoopThread, link: Link, node: Node
) -> None:
    with started(loop, link) as (remote, front):
        child = int(front.run(DETACHED).text)
        loop.call(remote.command, "restart")
        until(remote, "idle")
        fresh = int(front.run(DETACHED).text)
        gone(child)
        assert psutil.pid_exists(fresh)
        stop(loop, remote, node)
        gone(fresh)


@pytest.fixture()
def leftover(node: Node, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process as a killed keeper and kernel leave it, which has something like a GPU open."""
    env = dict(os.environ, JUPYTER_GPU_KERNEL_ID="past", JUPYTER_GPU_KERNEL_ROOT=str(node.root))
    code = "import sys; f = open(sys.argv[1], 'w'); " + STUBBORN
    command = [sys.executable, "-c", code, str(tmp_path / "nvidia3")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        yield process
        process.kill()


def test_leftovers_are_found_and_ended(leftover: subprocess.Popen[bytes], node: Node, tmp_path: Path) -> None:
    (row,) = [
        row for row in node.handlers.handle({"do": "leftovers"})["leftovers"] if row["pid"] == leftover.pid
    ]
    assert row["kernel"] == "past" and "SIG_IGN" in row["command"] and row["gpus"] == []
    assert open_gpus(leftover.pid, str(tmp_path / "nvidia")) == {3}
    assert leftovers.on_gpu({"index": 3, "processes": []}, [dict(row, gpus=[3])])
    assert leftovers.on_gpu({"index": 0, "processes": [{"pid": leftover.pid}]}, [row])
    assert not leftovers.on_gpu({"index": 0, "processes": []}, [row])

    for other in (dict(row, start=row["start"] + 1), dict(row, boot="another node's")):
        assert node.handlers.handle({"do": "end_leftovers", "leftovers": [other]})["ended"] == []
    assert leftover.poll() is None
    assert node.handlers.handle({"do": "end_leftovers", "leftovers": [row]})["ended"] == [row]
    assert leftover.wait() == -signal.SIGKILL


class Signals(AgentRuntime):
    """Notes the signals, and sends none."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[int, int]] = []

    def signal(self, pid: int, number: int, pidfd: int = -1) -> None:
        self.sent.append((pid, number))


def test_a_process_that_has_the_pid_of_an_earlier_one_gets_no_signal() -> None:
    pid, signals = os.getpid(), Signals()
    earlier, itself, gone = (
        Descendant(number, start, "", "past", "")
        for number, start in ((pid, start_ticks(pid) - 1), (pid, start_ticks(pid)), (2**22 + 1, 0))
    )
    assert (earlier.alive, itself.alive) == (False, True)
    for one in (earlier, gone, itself):
        one.send(signals, signal.SIGTERM)
    end_all(signals, [earlier])
    assert signals.sent == [(pid, signal.SIGTERM)]


def test_processes_of_a_living_kernel_are_no_leftovers(loop: LoopThread, link: Link, node: Node) -> None:
    with started(loop, link) as (remote, front):
        child = int(front.run(DETACHED).text)
        assert child in [process.pid for process in find_descendants(remote.kernel_id)]
        assert child not in [row["pid"] for row in node.handlers.handle({"do": "leftovers"})["leftovers"]]
        stop(loop, remote, node)
        gone(child)


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs two users")
def test_other_peoples_processes_are_never_seen(node: Node) -> None:
    env = dict(os.environ, JUPYTER_GPU_KERNEL_ID="past", JUPYTER_GPU_KERNEL_ROOT=str(node.root))
    command = ["setpriv", "--reuid=61234", "--regid=61234", "--clear-groups", "sleep", "600"]
    with subprocess.Popen(command, env=env) as other:
        wait_for(lambda: os.stat(f"/proc/{other.pid}").st_uid == 61234)
        try:
            assert other.pid not in [
                row["pid"] for row in node.handlers.handle({"do": "leftovers"})["leftovers"]
            ]
            assert other.pid not in [process.pid for process in find_descendants()]
        finally:
            other.kill()
