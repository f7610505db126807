"""A cell that is asked for while the node is out of reach says so, and why, until it runs."""

from __future__ import annotations

import os

import psutil
import pytest
from fronts import Front
from streams import QUICK, Breakable, LoopThread, Node, log, until, wait_for

from jupyter_gpu_kernel.errors import AuthError
from jupyter_gpu_kernel.hub.link import Link

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")


def test_the_cell_says_what_it_waits_for_and_then_is_as_ever(loop: LoopThread, node: Node) -> None:
    shut = False

    def dial(again: bool) -> Breakable:
        if shut:
            raise AuthError("it wants a code", hop="login", remedy="Run “jupyter gpu-kernel login”.")
        return node.dial(again)

    link = loop.call(lambda: Link("gpu2", dial, log, QUICK))
    remote = loop.kernel(link)
    until(remote, "idle")
    with Front(remote.edge.connection) as front:
        shut = True
        node.streams[-1].cut()
        wait_for(lambda: remote.link_state == "away" and link.problem, "the link's end")
        asked = front.client.execute("print('here')")
        notice = next(front.iopub(asked))
        text = notice["content"]["data"]["text/plain"]
        assert (
            "gpu2 is out of reach since" in text
            and "login: it wants a code" in text
            and "gpu-kernel login" in text
        )
        assert remote.describe()["link"] == "away" and not remote.ended
        shut = False
        loop.call(link.retry)
        loop.run(link.up())  # which does not tell the refusal of before
        cell = front.finish(asked)
        assert cell.messages[0]["msg_type"] == "clear_output"
        assert [said for said in cell.shown if said[0] == "stdout"] == [("stdout", "here\n")]
        assert "display_data" not in str(front.run("1").outputs)
    loop.run(link.close())


@pytest.mark.parametrize("shown", [False, True])
def test_it_is_gone_when_the_kernel_is(loop: LoopThread, node: Node, shown: bool) -> None:
    """The cell has ended then: it must not be told to wait, neither before nor later."""
    link = loop.link(node)
    remote = loop.kernel(link)
    until(remote, "idle")
    kernel = psutil.Process(remote.state["pid"])
    keeper = kernel.parent()
    assert keeper is not None
    with Front(remote.edge.connection) as front:
        node.pull()
        wait_for(lambda: remote.link_state == "away", "the link's end")
        asked = front.client.execute("print('here')")
        if shown:
            assert "out of reach" in str(next(front.iopub(asked)))
        wait_for(lambda: remote._unanswered.cells, "the cell")
        keeper.kill()
        kernel.kill()
        node.plugged = True
        cell = front.finish(asked)
        answered = ["status", "execute_input", "error", "status"]  # busy first, as of every cell
        assert [kind for kind, _ in cell.outputs] == ["clear_output"] * shown + answered
        assert remote._notice._timer is None
