"""Stop on error, whatever the distance: a cell sent before its front end knew of an earlier failure does not run."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from fronts import Front
from streams import Faults, LoopThread, Node, wait_for

from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]
FAILS = """import os, time
print('begun', flush=True)
while not os.path.exists({go!r}): time.sleep(0.01)
1 / 0"""
BROKEN = Faults(random.Random(0), read_limit=0, write_limit=0, stalls=False)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture(scope="module")
def remote(node: Node) -> Iterator[RemoteKernel]:
    with LoopThread() as loop:
        yield loop.kernel(loop.link(node))


@pytest.fixture(scope="module")
def front(remote: RemoteKernel) -> Iterator[Front]:
    with Front(remote.edge.connection) as front:
        yield front


def sent_while_away(node: Node, remote: RemoteKernel, front: Front, **how: bool) -> list[str]:
    """The states of two cells' replies: sent during a drop, in which the cell before them fails."""
    go = node.root / "go-on"
    go.unlink(missing_ok=True)
    failing = front.client.execute(FAILS.format(go=str(go)), **how)
    front.until_text(failing, "begun\n")
    node.faults = lambda: BROKEN
    node.streams[-1].cut()
    wait_for(lambda: remote.link_state == "away", "the link's end")
    later = [front.client.execute(f"ran_{n} = True", **how) for n in range(2)]
    go.touch()
    wait_for(lambda: "ZeroDivisionError" in _shown(node, remote), "the cell's failure")
    node.faults = lambda: None
    assert front.finish(failing).reply["ename"] == "ZeroDivisionError"
    return [front.finish(request).reply["status"] for request in later]


def _shown(node: Node, remote: RemoteKernel) -> str:
    request = {"do": "journal", "kernel": remote.kernel_id}
    last = node.handlers.handle(request)["cells"][-1]
    return str(node.handlers.handle(dict(request, msg_id=last["msg_id"])))


def test_what_was_sent_before_the_failure_was_known_is_aborted(
    node: Node, remote: RemoteKernel, front: Front
) -> None:
    front.run("ran_0 = ran_1 = False")
    assert sent_while_away(node, remote, front) == ["aborted", "aborted"]
    after = front.run("print(ran_0, ran_1)")
    assert (after.reply["status"], after.text) == ("ok", "False False\n"), "sent after it was known"


def test_all_runs_where_the_front_end_wants_that(node: Node, remote: RemoteKernel, front: Front) -> None:
    """As VS Code does, and `raises-exception` in JupyterLab."""
    front.run("ran_0 = ran_1 = False")
    assert sent_while_away(node, remote, front, stop_on_error=False) == ["ok", "ok"]
    assert front.run("print(ran_0, ran_1)").text == "True True\n"


def test_another_hub_that_finds_the_failure_seen_runs_what_comes(node: Node, loop: LoopThread) -> None:
    """The one before died after the failure was shown, and before it could say so."""
    link = loop.link(node)
    first = loop.kernel(link)
    with Front(first.edge.connection) as front:
        front.run("1 / 0")
        loop.call(first.close)
    second = loop.kernel(link, first.kernel_id)
    with Front(second.edge.connection) as front:
        assert front.run("1").reply["status"] == "ok"
