"""A keeper is killed, and none takes its place: the kernel ends by itself, and in time."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path

import pytest
from endings import DETACHED
from processes import has_ended
from streams import LoopThread, Node, wait_for
from successions import *  # noqa: F403 (its fixture)
from successions import Kernel, loops, started

from jupyter_gpu_kernel.agent.in_kernel import keeper_watch
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]


@pytest.fixture
def python(node: Node) -> Path:
    """A program in Python's place, which can be taken away."""
    path = node.root / f"python-{uuid.uuid4().hex}"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o700)
    return path


def test_without_a_successor_a_cell_may_finish(
    loop: LoopThread, link: Link, node: Node, python: Path
) -> None:
    done = node.root / "done"
    with started(loop, link, node, python=str(python)) as kernel:
        kernel.front.run("import gpu_kernel, pathlib")
        kernel.front.run(
            f"hook = gpu_kernel.on_sigterm(lambda: pathlib.Path({str(done)!r}).write_text('hook'))"
        )
        code, stop = loops(node)
        request = kernel.front.client.execute(DETACHED + code)
        child = int(kernel.front.until_text(request, "\n"))
        python.unlink()
        os.kill(kernel.keeper, signal.SIGKILL)
        wait_for(lambda: kernel.story("orphan"), "the kernel's notice")
        assert "no other keeper could be started: [Errno 2]" in kernel.story("fault")[-1]["text"]
        assert not has_ended(kernel.pid) and not done.exists(), "the cell goes on"
        assert not kernel.listed() and node.handlers.root.kernel(kernel.remote.kernel_id).exists()
        stop.touch()
        wait_for(
            lambda: has_ended(kernel.pid) and has_ended(child), "the end of the kernel and of what it started"
        )
        assert done.read_text() == "hook"
        wait_for(lambda: kernel.remote.link_state == "lost", "the hub's notice")
        assert "keeper" in str(kernel.remote.status["cause"])
        assert not kernel.listed()
        kernel.is_gone()


def test_so_many_successors_are_enough(kernel: Kernel) -> None:
    for _ in range(keeper_watch.MAX_STARTS):
        kernel.kill_keeper()
    os.kill(kernel.keeper, signal.SIGKILL)
    wait_for(lambda: kernel.story("orphan"), "the kernel's notice")
    assert "the last 5 ended, too" in kernel.story("fault")[-1]["text"]
    wait_for(lambda: has_ended(kernel.pid), "the kernel's end")
    assert not kernel.listed()


def test_without_a_successor_an_endless_cell_ends(
    loop: LoopThread, link: Link, node: Node, python: Path
) -> None:
    settings = {"python": str(python), "env": {"JUPYTER_GPU_KERNEL_ORPHAN": "0.5"}}
    with started(loop, link, node, **settings) as kernel:
        request = kernel.front.client.execute(loops(node)[0])
        kernel.front.until_text(request, "3\n")
        python.unlink()
        os.kill(kernel.keeper, signal.SIGKILL)
        wait_for(lambda: has_ended(kernel.pid), "the kernel's end")
        assert [entry["event"] for entry in kernel.story()][-3:] == ["fault", "orphan", "end"]
        wait_for(lambda: kernel.remote.link_state == "lost", "the hub's notice")
        assert not kernel.listed()
        kernel.is_gone()
