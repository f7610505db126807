"""The site's limit on how long a kernel keeps GPUs while others wait: told in advance, and kept."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leases import read_leases
from practice_gpus import *  # noqa: F403 (its fixtures)
from practice_gpus import AGENT, VISIBLE, Gpus, open_front
from streams import LoopThread, Node, until, wait_for
from successions import started

from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can be somebody else"),
]

ROOT = Path(__file__).parents[2]
QUICK = """
import os
from pathlib import Path
from jupyter_gpu_kernel.agent import policy

policy.PATH = Path(POLICY)
policy.read_policy.__defaults__ = (policy.PATH,)

from jupyter_gpu_kernel.agent.keeper.limits import hold_limit as limit

limit.NOTICE, limit.WAITED, limit.INTERVAL, limit.HOOK_TIME, limit.STAGGER = 0.3, 0.0, 0.1, 0.3, 0.0
is_over = limit.HoldClock.is_over
limit.HoldClock.is_over = lambda *facts: is_over(*facts) and os.path.exists(MAY_END)
"""
SETTINGS: dict[str, Any] = {"gpus": 1}
WAITER = """
import os, sys
from jupyter_gpu_kernel.agent.gpus.sharing.wait_queue import WaitQueue
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime

os.setgroups([])
os.setuid(61235)
loop = Loop(AgentRuntime())
queue = WaitQueue(loop, "other")
queue.join(1)
queue.announce(sys.argv[1:])
print("up", flush=True)
loop.run()
"""
OPENS_GPU = """
import mmap, os, tempfile
path = os.path.join(tempfile.mkdtemp(), "libcuda.so.1")  # a mapped file counts as a loaded library
with open(path, "wb") as file:
    file.write(b"x")
file = open(path, "rb")
held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
"""
TRAINS = """
import gpu_kernel, time
@gpu_kernel.on_sigterm
def save():
    print("saved", flush=True)
print("trains")
while True:
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def node(gpus: Gpus) -> Iterator[Node]:
    """One whose limit is told just before, and comes when the test allows it (`may_end`)."""
    with Node(**gpus.env) as node:
        program = node.root / "agent-0"
        program.mkdir()
        (node.root / "policy.json").write_text('{"longest_hold": 0.5}')
        quick = QUICK.replace("MAY_END", repr(str(node.root / "may_end")))
        quick = quick.replace("POLICY", repr(str(node.root / "policy.json")))
        (program / "__main__.py").write_text(AGENT.replace("import sys\n", f"import sys\n{quick}", 1))
        node.program = [str(program)]
        yield node


@pytest.fixture
def may_end(node: Node) -> Iterator[Path]:
    path = node.root / "may_end"
    yield path
    path.unlink()


@contextlib.contextmanager
def somebody_waits(gpus: Gpus) -> Iterator[None]:
    """Another user's kernel waits for any of these GPUs."""
    command = [sys.executable, "-c", WAITER, *gpus.uuids]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"up\n"
            yield
        finally:
            process.kill()


def story_of(loop: LoopThread, link: Link, remote: RemoteKernel) -> str:
    lines = loop.run(link.request("story", kernel=remote.kernel_id))["story"]
    return "\n".join(str(line["text"]) for line in lines)


def test_a_running_cell_is_notified_and_ends_at_the_limit(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack, may_end: Path
) -> None:
    remote = loop.kernel(link, **SETTINGS)
    front = open_front(loop, remote, stack)
    cell = front.client.execute(TRAINS)
    front.until_text(cell, "trains")
    with somebody_waits(gpus):
        reported = front.until_text(cell, "saved").replace("\n", " ")
        assert "keep its GPUs for 0.5 s while others wait, and a kernel of another user waits" in reported
        assert "Save your work" in reported
    front.until_text(cell, "Nobody waits for this kernel's GPUs any more")
    may_end.touch()
    with somebody_waits(gpus):
        end = front.finish(cell)
        assert end.text.count("saved") == 2 and "gives its GPUs back now" in end.text
        name, why = next(printed for kind, printed in end.outputs if kind == "error")
        assert name == "DeadKernelError" and "the site's policy lets a kernel keep its GPUs for 0.5 s" in why
        wait_for(lambda: remote.ended, "the kernel's end")
        assert not read_leases(gpus.uuids)
    assert "Nobody waits" in story_of(loop, link, remote)


def test_gpus_that_were_never_opened_go_back_and_the_kernel_stays_until_it_opens_them(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack, may_end: Path
) -> None:
    remote = loop.kernel(link, **SETTINGS)
    front = open_front(loop, remote, stack)
    with somebody_waits(gpus):
        assert front.run(VISIBLE).text.strip() in gpus.uuids
        wait_for(lambda: "of another user waits" in story_of(loop, link, remote), "the notice")
        assert "others wait" in str(front.run("1").outputs), "the next cell shows it"
        assert remote.status["gpus"], "not before the time that was told"
        may_end.touch()
        wait_for(lambda: remote.status["gpus"] == [], "the release")
    until(remote, "idle")
    assert "released GPU" in story_of(loop, link, remote)
    assert front.run(VISIBLE).text.strip() in gpus.uuids
    front.run(OPENS_GPU)
    with somebody_waits(gpus):
        wait_for(lambda: remote.ended, "the kernel's end: only then are its GPUs free")


def test_the_limit_holds_after_the_keeper_was_replaced(
    loop: LoopThread, link: Link, node: Node, gpus: Gpus
) -> None:
    with started(loop, link, node, **SETTINGS) as kernel:
        assert kernel.front.run(VISIBLE).text.strip() in gpus.uuids
        kernel.kill_keeper()
        with somebody_waits(gpus):
            wait_for(lambda: "of another user waits" in story_of(loop, link, kernel.remote), "the notice")
