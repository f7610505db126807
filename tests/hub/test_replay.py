"""A real kernel prints far more than the journal holds while nobody is attached; then somebody comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from streams import Breakable, Front, LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.agent.journal.backlog import MIB
from jupyter_gpu_kernel.errors import ConnectError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")
CAP = 3


class PluggedNode(Node):
    """Its cable can be pulled."""

    def __init__(self) -> None:
        super().__init__()
        self.plugged = True

    def dial(self, again: bool = False) -> Breakable:
        if not self.plugged:
            raise ConnectError("the cable is out")
        return super().dial(again)

    def pull(self) -> None:
        self.plugged = False
        for stream in self.streams:
            stream.cut()


@pytest.fixture
def node() -> Iterator[PluggedNode]:
    node = PluggedNode()
    with node:
        yield node


@pytest.fixture
def loop(node: PluggedNode) -> Iterator[LoopThread]:
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


def test_fifty_megabytes_while_nobody_is_there(node: PluggedNode, loop: LoopThread, tmp_path: Path) -> None:
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
    assert [said for kind, said in cell.outputs[-2:]] == [("ZeroDivisionError", "division by zero"), "idle"]
    kinds = [kind for kind, _ in cell.outputs]
    assert kinds == ["stdout", "stderr", "stdout", "error", "status"]
    head, notice, tail = (said for kind, said in cell.outputs if kind in ("stdout", "stderr"))
    lines = ["%08d %s" % (number, "x" * 70) for number in range(600_000)]
    assert "".join(head).startswith("\n".join(lines[:5000]))
    assert "MB of output left out here" in notice
    *last_lines, progress = tail.split("\n")
    assert last_lines[-5000:] == lines[-5000:]
    assert progress.endswith("step  4999") and len(progress) < 1000
    assert "journal's cap is reached" in node.story(remote.kernel_id)


def test_a_shutdown_does_not_wait_for_a_replay(node: PluggedNode, loop: LoopThread, tmp_path: Path) -> None:
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
        wait_for(lambda: remote.pacer.waiting > 20, "a queue")
        assert front.control("shutdown_request", restart=False)["status"] == "ok"
        until(remote, "ended")
