"""A real kernel prints far more than the journal holds while nobody is attached; then somebody comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fronts import Front
from streams import LoopThread, Node, until, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.agent.log.hub_queue import MIB

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]
CAP = 3


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture
def loop(node: Node) -> Iterator[LoopThread]:
    with LoopThread() as loop:
        yield loop


PRINT = """
import os, time
print(os.getpid(), flush=True)
while not os.path.exists({go!r}): time.sleep(0.01)
for number in range(600_000): print('%08d' % number, 'x' * 70)
for number in range(5000): print('\\rstep %5d' % number, end='', flush=number % 100 == 0)
open({done!r}, 'w').close()
1 / 0
"""


def test_fifty_megabytes_while_nobody_is_there(node: Node, loop: LoopThread, tmp_path: Path) -> None:
    remote = loop.kernel(loop.link(node), journal_memory_mib=0.5, journal_cap_mib=CAP)
    go, done = tmp_path / "go", tmp_path / "done"
    with Front(remote.edge.connection) as front:
        request = front.client.execute(PRINT.format(go=str(go), done=str(done)))
        keeper = psutil.Process(int(front.until_text(request, "\n"))).parent()
        assert keeper is not None
        node.pull()
        wait_for(lambda: remote.link_state == "away", "the end of the link")
        go.touch()
        wait_for(done.exists, "the end of the cell")
        spilled = [file for file in psutil.Process(keeper.pid).open_files() if "(deleted)" in file.path]
        assert sum(os.stat(f"/proc/{keeper.pid}/fd/{file.fd}").st_size for file in spilled) <= CAP * MIB
        assert keeper.memory_info().rss < 150 * MIB
        node.plugged = True
        cell = front.finish(request)
    assert cell.reply["ename"] == "ZeroDivisionError"
    assert [printed for kind, printed in cell.outputs[-2:]] == [
        ("ZeroDivisionError", "division by zero"),
        "idle",
    ]
    kinds = [kind for kind, _ in cell.outputs]
    assert kinds[:2] == ["display_data", "update_display_data"]  # "out of reach", until the link is back
    assert kinds[2:] == ["stdout", "stderr", "stdout", "error", "status"]
    head, notice, tail = (printed for kind, printed in cell.outputs if kind in ("stdout", "stderr"))
    lines = ["%08d %s" % (number, "x" * 70) for number in range(600_000)]
    assert "".join(head).startswith("\n".join(lines[:5000]))
    assert "MB of output left out here" in notice
    *last_lines, progress = tail.split("\n")
    assert last_lines[-5000:] == lines[-5000:]
    assert progress.endswith("step  4999") and len(progress) < 1000
    assert "exceeds journal_cap_mib" in node.story(remote.kernel_id)


def test_a_shutdown_does_not_wait_for_a_replay(node: Node, loop: LoopThread, tmp_path: Path) -> None:
    """Of which there is more than a minute's."""
    remote = loop.kernel(loop.link(node))
    go, done = tmp_path / "go", tmp_path / "done"
    with Front(remote.edge.connection) as front:
        request = front.client.execute(PRINT.format(go=str(go), done=str(done)))
        front.until_text(request, "\n")
        node.pull()
        wait_for(lambda: remote.link_state == "away", "the end of the link")
        go.touch()
        wait_for(done.exists, "the end of the cell")
        node.plugged = True
        front.until_text(request, "00000100")
        wait_for(lambda: remote.core.relay.pacer.waiting > 2, "a queue")
        assert front.control("shutdown_request", restart=False)["status"] == "ok"
        until(remote, "ended")


@pytest.mark.parametrize("reach", ["in reach", "out of reach"])
def test_kernel_info_while_a_cell_runs(node: Node, loop: LoopThread, reach: str) -> None:
    """It is answered at once. The answer ends as any does, and does not say that the cell has."""
    remote = loop.kernel(loop.link(node))
    with Front(remote.edge.connection) as front:
        cell = front.client.execute("import time; print('asleep', flush=True); time.sleep(600)")
        front.until_text(cell, "asleep")
        if reach == "out of reach":
            node.pull()
            wait_for(lambda: remote.link_state == "away", "the end of the link")
        asked = front.client.kernel_info()
        states = [message["content"]["execution_state"] for message in front.iopub(asked)]
        assert states == ["busy", "idle"]
        state = front.client.get_iopub_msg(timeout=DEADLINE)
        assert (state["content"], state["parent_header"]) == ({"execution_state": "busy"}, {})
        node.plugged = True
        assert front.control("interrupt_request")["status"] == "ok"
        assert front.finish(cell).reply["ename"] == "KeyboardInterrupt"
        assert remote.describe()["state"] == "idle"
