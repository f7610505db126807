"""GPUs of kernels that are restarted, replaced or returned to."""

from __future__ import annotations

import contextlib
import os
import re

import pytest
from fronts import Front
from leases import read_leases
from practice_gpus import *  # noqa: F403 (its fixtures)
from practice_gpus import VISIBLE, Gpus, open_front
from runtimes import RUNTIME
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.hub.kernel.vscode.sessions import VSCodeSession, VSCodeSessions
from jupyter_gpu_kernel.hub.node.link import Link

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]
NAMED = "__vsc_ipynb_file__ = '/home/me/of-vs-code.ipynb'"


def test_restart_keeps_the_gpu(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    gpus.report(4)
    remote = loop.kernel(link, gpus=2)
    front = open_front(loop, remote, stack)
    before = front.run(VISIBLE + "\nx = 1").text
    assert len(before.split(",")) == 2
    loop.call(remote.command, "restart")
    until(remote, "idle")
    uuids = before.strip().split(",")
    assert remote.status["gpus"] == uuids, "also before a cell asks for them"
    # Kernels of other tests, which queue before ours, may leave others than the first two.
    names = [f"GPU {gpus.uuids.index(one)} (NVIDIA A100-SXM4-80GB)" for one in uuids]
    assert remote.status["gpu_names"] == names
    assert f"took {', '.join(names)}" in node.story(remote.kernel_id)
    assert front.run(VISIBLE + "\nprint('x' in globals())").text == before + "False\n"
    assert front.run("import gpu_kernel; print(len(gpu_kernel.status()['gpus']))").text == "2\n"
    memory = "memory = gpu_kernel.status()['memory']; print(memory['gpu_used_mib'], memory['gpu_total_mib'])"
    assert front.run(memory).text == "2 163840\n", "of both together"


def test_a_restart_before_the_kernel_got_its_gpu(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """The new process is born with it, and the gate is open."""
    gpus.report(4)
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    internal = front.client.execute("import time; time.sleep(600)", store_history=False)
    held = front.client.execute(VISIBLE)
    wait_for(lambda: "took GPU" in node.story(remote.kernel_id), "a GPU")
    loop.call(remote.command, "restart")
    assert front.finish(internal).reply["ename"] == "DeadKernelError"
    assert front.finish(held).reply["ename"] == "DeadKernelError"
    assert front.run(VISIBLE).text.strip() in gpus.uuids


def test_a_restart_answers_all_that_wait(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack
) -> None:
    """Also behind a cell that does not take others along when it fails."""
    gpus.report(1)
    holder = open_front(loop, loop.kernel(link, gpus=1), stack)
    holder.run("1")
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    held = [front.client.execute(VISIBLE, stop_on_error=False) for _ in range(3)]
    until(remote, "waiting")
    wait_for(lambda: not remote.endpoint.outbox.size, "the cells' arrival, which the restart would overtake")
    loop.call(remote.command, "restart")
    assert [front.finish(cell).reply["ename"] for cell in held] == ["DeadKernelError"] * 3
    gpus.report(2)
    assert front.run(VISIBLE).text.strip() == gpus.uuids[1]


def test_the_kernel_gets_its_gpu_again_where_a_failure_took_that_along(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """A front end's own code fails, and what is in the kernel's queue behind it is aborted."""
    gpus.report(4)
    remote = loop.kernel(link, gpus=1)
    front = open_front(loop, remote, stack)
    story = node.root / "stories" / f"{remote.kernel_id}.jsonl"
    waits = f"import time\nwhile 'took GPU' not in open({str(story)!r}).read(): time.sleep(0.01)\n"
    front.client.execute(waits + "time.sleep(0.3)\n1 / 0", store_history=False)
    assert front.run(VISIBLE, stop_on_error=False).text.strip() in gpus.uuids


def test_who_returns_is_greeted_also_where_the_cell_waits(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    gpus.report(1)
    holder = open_front(loop, loop.kernel(link, gpus=1), stack)
    holder.run("1")
    first = loop.kernel(link, gpus=1, notebook="/home/me/greeted.ipynb")
    until(first, "idle")
    loop.call(first.close)
    wait_for(lambda: "no front end is connected" in node.story(first.kernel_id), "the front end's leaving")
    again = loop.kernel(link, gpus=1, notebook="/home/me/greeted.ipynb")
    until(again, "idle")
    assert again.kernel_id == first.kernel_id
    front = open_front(loop, again, stack)
    cell = front.client.execute(VISIBLE)
    wait_for(lambda: again.status["state"] == "waiting", "the gate")
    for message in front.iopub(cell):
        if "Waiting for" in str(message["content"]):
            break
    gpus.report(2)
    assert "Back on kernel" in str(front.finish(cell).outputs)


def test_a_restart_with_a_new_kernel_hands_the_gpu_over(
    loop: LoopThread, link: Link, gpus: Gpus, node: Node, stack: contextlib.ExitStack
) -> None:
    """As in VS Code. The only GPU is in use by the kernel itself, and somebody else waits for it."""
    gpus.report(1)
    stack.callback(gpus.report, 4)
    sessions = VSCodeSessions(RUNTIME.monotonic)
    session = VSCodeSession(sessions, 1, "one")
    old = loop.kernel(link, session=session, gpus=1, name="one")
    front = stack.enter_context(Front(old.edge.connection))
    loop.call(sessions.begin, session)
    front.run(NAMED, store_history=False)
    pid = front.run(VISIBLE + "; print(os.getpid())").text.split()[1]
    gpus.report(1, gpus=[{"uuid": gpus.uuids[0], "processes": [{"pid": int(pid), "memory": 900}]}])
    other = open_front(loop, loop.kernel(link, gpus=1, name="other"), stack)
    waits = other.client.execute(VISIBLE)
    wait_for(
        lambda: "Waiting" in str(other.client.get_iopub_msg(timeout=60)["content"]),
        "the other's place in line",
    )
    busy = front.client.execute("import time\ntime.sleep(600)")
    wait_for(lambda: old.describe()["state"] == "busy", "the cell")

    next_session = VSCodeSession(sessions, 1, "one")
    new = loop.kernel(link, session=next_session, gpus=1, name="one")
    loop.call(sessions.begin, next_session)
    loop.call(sessions.end, session, old)
    loop.call(old.close)
    front = open_front(loop, new, stack)
    front.run(NAMED, store_history=False)
    cell = front.run(VISIBLE)
    assert cell.text.strip() == gpus.uuids[0] and "Waiting" not in str(cell.outputs)
    gpu = rf"(GPU 0 \(.+\)|{gpus.uuids[0]})"  # the name, if the new keeper has looked at the GPUs by then
    reported = str(cell.outputs).replace("\\n", " ")
    assert re.search(f"with {gpu}; the previous one, {old.kernel_id}, has ended", reported)
    assert not (node.root / "k" / old.kernel_id).exists() and busy
    assert read_leases(gpus.uuids[:1])[gpus.uuids[0]].id == new.kernel_id
    gpus.report(2)
    assert other.finish(waits).text.strip() == gpus.uuids[1]


@pytest.mark.parametrize("restart", [True, False])
def test_a_text_of_the_session_before_becomes_empty_by_the_next_ones_first_cell(
    loop: LoopThread, link: Link, gpus: Gpus, stack: contextlib.ExitStack, restart: bool
) -> None:
    """VS Code does not receive what the old kernel sends after a restart, nor, when a notebook returns, what the kernel
    has sent for its cells meanwhile."""
    gpus.report(1, gpus=[{"uuid": gpus.uuids[0], "ghost": 30000}])
    stack.callback(gpus.report, 4)
    sessions = VSCodeSessions(RUNTIME.monotonic)
    session = VSCodeSession(sessions, 1, "one")
    next_session = VSCodeSession(sessions, 1 if restart else 2, "one")
    old = loop.kernel(link, session=session, gpus=1, name="one")
    front = stack.enter_context(Front(old.edge.connection))
    loop.call(sessions.begin, session)
    front.run(NAMED, store_history=False)
    waits = front.iopub(front.client.execute("1"))
    shown = next(one["content"] for one in waits if one["msg_type"] == "display_data")
    assert "Waiting" in str(shown["data"])
    new = loop.kernel(link, session=next_session, gpus=0, name="one")
    loop.call(sessions.begin, next_session)
    loop.call(sessions.end, session, old)
    loop.call(old.close)
    gpus.report(4)
    front = open_front(loop, new, stack)
    front.run(NAMED, store_history=False)
    assert (new.kernel_id == old.kernel_id) is not restart
    cells = [front.run("1") for _ in range(2)]
    updates = [
        [
            one["content"]
            for one in cell.messages
            if one["msg_type"] == "update_display_data" and "%gpu missed" not in str(one)
        ]
        for cell in cells
    ]
    assert updates == [[{"data": {"text/plain": ""}, "metadata": {}, "transient": shown["transient"]}], []]
