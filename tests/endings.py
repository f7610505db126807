"""Kernels that end, and what is told of that: what tests of ends join."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fronts import Front
from processes import has_ended
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.agent.story import read_story
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.link import Link

STUBBORN = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)
DETACHED = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
"""
"""A cell that starts a process which leaves the kernel's session and ignores SIGTERM."""


@contextlib.contextmanager
def started(loop: LoopThread, link: Link, **settings: Any) -> Iterator[tuple[RemoteKernel, Front]]:
    remote = loop.kernel(link, **settings)
    with Front(remote.edge.connection) as front:
        until(remote, "idle", "busy")
        yield remote, front


def reported(remote: RemoteKernel, node: Node) -> str:
    """The end, as state and story tell it: the same, but that the state's cause is attributed."""
    until(remote, "ended")
    ends = [entry for entry in story(remote, node) if entry["event"] == "end"]
    names = ("cause", "evidence", "remedy")
    attributed = {**ends[-1], "cause": f"the node says: {ends[-1]['cause']}"}
    assert [remote.status.get(name) for name in names] == [attributed[name] for name in names]
    return str(ends[-1]["text"])


def story(remote: RemoteKernel, node: Node) -> list[dict[str, Any]]:
    return read_story(node.handlers.root.story(remote.kernel_id))


def listed(node: Node) -> list[str]:
    return [str(state["id"]) for state in node.handlers.handle({"do": "list"})["kernels"]]


def stop(loop: LoopThread, remote: RemoteKernel, node: Node) -> None:
    """Until nothing of it is left."""
    loop.call(remote.command, "stop")
    wait_for(lambda: remote.kernel_id not in node.handlers.root.kernels(), "the end of the keeper")


def gone(pid: int) -> None:
    wait_for(lambda: has_ended(pid), f"the end of {pid}")
