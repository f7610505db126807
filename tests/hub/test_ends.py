"""How real kernels end: each death told with its cause."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from endings import DETACHED, gone, reported, started, stop, story
from keepers import keeper_of
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.agent.exit import leftovers
from jupyter_gpu_kernel.agent.system.procfs import boot_id
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]
CGROUPS = Path("/sys/fs/cgroup/memory")


# ---------------------------------------------------------------------------------------------- deaths


def test_a_crash_in_c_code_names_the_line_of_the_cell(loop: LoopThread, link: Link, node: Node) -> None:
    with started(loop, link) as (remote, front):
        cell = front.run("import ctypes\ndef crash():\n    ctypes.string_at(1)\ncrash()")
        assert cell.reply["ename"] == "DeadKernelError"
        for word in ("segmentation fault", "crash (the cell, line 3)", "restart"):
            assert word in cell.reply["evalue"]
        assert reported(remote, node) == cell.reply["evalue"]
        assert "segmentation fault" in front.run("1").reply["evalue"], "the next cell hears it, too"


def test_exit_in_a_cell(loop: LoopThread, link: Link, node: Node) -> None:
    with started(loop, link) as (remote, front):
        assert front.run("exit()").reply["status"] == "ok"
        assert "exit() or quit() was called in a cell" in reported(remote, node)


def test_sigterm_while_not_in_use_names_its_sender(loop: LoopThread, link: Link, node: Node) -> None:
    with started(loop, link, guard_linger=0) as (remote, front):
        pid = int(front.run("import os; print(os.getpid())").text)
        program = [
            sys.executable,
            "-c",
            "import os, sys; os.kill(int(sys.argv[1]), 15); sys.stdin.read()",
            str(pid),
        ]
        with subprocess.Popen(program, stdin=subprocess.PIPE) as sender:
            text = reported(remote, node)
        assert f"(pid {sender.pid}, python" in text and "while it was not in use" in text
        assert remote.status["returncode"] == -signal.SIGTERM


def test_a_sigterm_while_c_code_holds_pythons_lock_is_in_the_story_at_once(
    loop: LoopThread, link: Link, node: Node
) -> None:
    held, go = node.root / "held", node.root / "go-on"
    script = f"touch {held}; while [ ! -e {go} ]; do sleep 0.02; done".encode()
    with started(loop, link) as (remote, front):
        pid = int(front.run("import ctypes, gpu_kernel, os, time; print(os.getpid())").text)
        request = front.client.execute(
            f"ctypes.PyDLL(None).system({script!r})\n"
            "while not gpu_kernel._guard.count: time.sleep(0.01)\ntime.sleep(0.1)"
        )
        wait_for(held.exists, "the call")
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: "holds Python's lock" in node.story(remote.kernel_id), "a line in the story")
        assert "survived" not in node.story(remote.kernel_id), "nobody can have taken it"
        go.touch()
        assert "the cell goes on" in front.finish(request).text
        wait_for(lambda: "survived" in node.story(remote.kernel_id))
        assert [entry["event"] for entry in story(remote, node)].count("sigterm") == 2


def test_a_front_ends_kill_is_not_a_riddle(loop: LoopThread, link: Link, node: Node) -> None:
    with started(loop, link) as (remote, front):
        front.client.execute("import time; time.sleep(600)")
        until(remote, "busy", "idle")
        loop.call(remote.command, "kill")
        assert "its front end ended it with SIGKILL" in reported(remote, node)


@pytest.mark.parametrize("env", [{}, {"SLURM_JOB_ID": "17"}])
def test_somebodys_sigkill(env: dict[str, str]) -> None:
    with Node(**env) as node, LoopThread() as loop, started(loop, loop.link(node)) as (remote, front):
        pid = int(front.run("import os, time; print(os.getpid())").text)
        request = front.client.execute("print('begun', flush=True); time.sleep(600)")
        front.until_text(request, "begun")
        os.kill(pid, signal.SIGKILL)
        cell = front.finish(request)
        for word in ["Slurm job 17", "sacct"] if env else ["unknown sender", "administrators"]:
            assert word in cell.reply["evalue"]
        assert reported(remote, node) == cell.reply["evalue"]
        stop(loop, remote, node)


@pytest.fixture()
def cgroup() -> Iterator[Path]:
    """A memory cgroup of 300 MiB."""
    folder = CGROUPS / f"jgk-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("needs the right to make a memory cgroup (version 1)")
    (folder / "memory.limit_in_bytes").write_text(str(300 << 20))
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text(), "the end of what ran in the cgroup")
    folder.rmdir()


def test_out_of_memory_in_a_cgroup(cgroup: Path) -> None:
    with Node() as node, LoopThread() as loop:
        link = loop.link(node)
        loop.run(link.request("list"))
        (cgroup / "cgroup.procs").write_text(str(node.streams[0].stream.process.pid))
        with started(loop, link) as (remote, front):
            cell = front.run("data = bytearray(1 << 30)")
            assert "the limit of 300 MiB" in cell.reply["evalue"] and "--mem" in cell.reply["evalue"]
            assert "oom_kill" in reported(remote, node)
            stop(loop, remote, node)


# ---------------------------------------------------------------------------------------------- keepers' deaths


def test_after_a_reboot_running_and_next_cell_say_so(loop: LoopThread, link: Link, node: Node) -> None:
    """As good as one: kernel and keeper are killed while nobody is there, and the boot id was another one."""
    with started(loop, link) as (remote, front):
        for shown in remote.front_ends:
            loop.call(remote.front_ends.reconnect, shown, FrontEndSpec(shown.edge.connection, revives=True))
        old, kernel = remote.kernel_id, int(front.run("import os, time; print(os.getpid())").text)
        child = int(front.run(DETACHED).text)  # what survives changes nothing
        request = front.client.execute("print('begun', flush=True); time.sleep(600)")
        front.until_text(request, "begun")
        node.pull()
        keeper = keeper_of(kernel)
        os.kill(kernel, signal.SIGSTOP)  # else it would have a successor of its keeper started
        for pid in (keeper, kernel):
            os.kill(pid, signal.SIGKILL)
            gone(pid)
        path = node.handlers.root.story(old)
        path.write_text(path.read_text().replace(boot_id(), "another"))
        node.plugged = True
        cell = front.finish(request)
        assert cell.reply["ename"] == "DeadKernelError"
        assert "the node was rebooted at" in cell.reply["evalue"]
        assert "the node was rebooted at" in node.story(old)
        nothing = [entry for entry in cell.messages if entry["msg_type"] == "display_data"]
        assert not nothing, "no word of a new kernel yet"
        following = front.run("print(os.getpid() if 'os' in globals() else 'new')")
        assert following.text == "new\n" and "had ended: the node says: kernel" in str(following.outputs)
        assert "the node was rebooted at" in str(following.outputs)
        os.kill(child, signal.SIGKILL)
        stop(loop, remote, node)


KEEPER = """
import pathlib, sys
from jupyter_gpu_kernel.agent.keeper.keeper import Keeper
from jupyter_gpu_kernel.agent.keeper.system import KeeperSystem
from jupyter_gpu_kernel.agent.kernel_settings import settings_from
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.policy import read_policy
from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime
root, policy = map(pathlib.Path, sys.argv[1:])
sys.argv[0] = 'agent'
settings = settings_from({'id': 'k1', 'gpus': 0})
Keeper(KeeperSystem(AgentRuntime()), Root(root), settings, read_policy(policy)).run()
"""


def test_a_keeper_keeps_to_the_sites_policy(tmp_path: Path) -> None:
    """A keeper that is given another policy's path, as no user can: it is an argument of its class."""
    policy = tmp_path / "policy.json"
    policy.write_text('{"guard": false, "max_idle": 600}')
    with Node() as node, LoopThread() as loop:
        with subprocess.Popen([sys.executable, "-c", KEEPER, str(node.root), str(policy)]) as keeper:
            wait_for(lambda: leftovers.has_keeper(node.handlers.root.kernel("k1")), "the keeper")
            with started(loop, loop.link(node), kernel_id="k1") as (remote, front):
                assert "off" in front.run("import gpu_kernel; print(gpu_kernel.status()['guard'])").text
                os.kill(int(front.run("import os; print(os.getpid())").text), signal.SIGTERM)
                reported(remote, node)
                assert remote.status["returncode"] == -signal.SIGTERM
                stop(loop, remote, node)
            assert keeper.wait() == 0
        assert "no guard against SIGTERM, idle for at most 600 s" in node.story("k1")
        assert "SIGTERM from an unknown sender ended it (the guard was off)" in node.story("k1")


# ---------------------------------------------------------------------------------------------- earlyoom


@pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("earlyoom"), reason="needs earlyoom, and root for it"
)
def test_the_real_earlyoom(tmp_path: Path) -> None:
    """In a process namespace of its own, where nothing but this kernel can be seen, and so hit. Takes 10 s."""
    go = tmp_path / "go"
    script = 'python=$1 code=$2 root=$3 go=$4; "$python" -c "$code" "$root" /none & '
    script += 'while [ ! -e "$go" ]; do sleep 0.1; done; exec earlyoom -m 99 -s 100 -r 0'
    with Node() as node, LoopThread() as loop:
        space = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*space, "sh", "-c", script, "sh", sys.executable, KEEPER, str(node.root), str(go)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as keeper:
            try:
                wait_for(lambda: leftovers.has_keeper(node.handlers.root.kernel("k1")), "the keeper")
                with started(loop, loop.link(node), kernel_id="k1") as (remote, front):
                    request = front.client.execute(
                        "import time\ndata = b'x' * (600 << 20)\nprint('full')\ntime.sleep(600)"
                    )
                    front.until_text(request, "full")
                    go.touch()
                    first = front.finish(request)
                    assert "earlyoom" in first.text and "memory is short" in first.text
                    assert first.reply["ename"] == "KeyboardInterrupt", "the variables stay"
                    second = front.run("print(len(data))\ntime.sleep(600)")
                    assert "earlyoom ended it: the node's memory was short" in second.reply["evalue"]
                    reported(remote, node)
            finally:
                keeper.kill()
        shutil.rmtree(node.root / "k" / "k1", ignore_errors=True)
