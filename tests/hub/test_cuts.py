"""The promise: whatever the stream does, front ends get every message exactly once and in order.

One kernel does the same things over and over; the streams to it tear, stall and break where a seed says.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from streams import Faults, Front, LoopThread, Node, wait_for

from jupyter_gpu_kernel.hub.kernels import RemoteKernel

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")

PRINTS = "for i in range(400): print(i, '.' * 60, flush=i % 20 == 0)"
DISPLAYS = """
from IPython.display import display
handle = display('first', display_id='d')
for i in range(30): print(i); handle.update(i)
display({'text/html': 'z' * 300_000}, raw=True)
"""
ASKS = "print('before'); a = input('a? '); b = input('b? '); print(a, b)"
FAILS = "import sys; print('out'); print('err', file=sys.stderr); 1 / 0"
SLEEPS = "import time; print('asleep', flush=True); time.sleep(600)"


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


def script(front: Front) -> list[Any]:
    """Everything a front end shows of these cells. (Of display updates that wait the last one is sent.)"""
    queued = [front.client.execute(code) for code in (PRINTS, "6 * 7")]  # without waiting for replies
    cells = [front.finish(request) for request in queued]
    cells += [front.run(DISPLAYS), front.run(ASKS, answers=["x", "y"]), front.run(FAILS)]
    request = front.client.execute(SLEEPS)
    said = front.until_text(request, "asleep\n")
    assert front.control("interrupt_request")["status"] == "ok"
    cells.append(front.finish(request))
    return [said, *((cell.reply["status"], cell.shown) for cell in cells)]


@pytest.fixture(scope="module")
def undisturbed(front: Front) -> list[Any]:
    return script(front)


@pytest.mark.parametrize("seed", range(5))
def test_exactly_once_and_in_order(seed: int, node: Node, front: Front, undisturbed: list[Any]) -> None:
    rng = random.Random(seed)
    node.faults = lambda: Faults.drawn(rng)
    before = len(node.streams)
    node.streams[-1].cut()
    try:
        seen = script(front)
    finally:
        node.faults = lambda: None
        node.streams[-1].cut()
    assert seen == undisturbed
    assert len(node.streams) > before, "nothing was cut"
    assert front.run("print('in step')").text == "in step\n"  # nothing of before comes again


def test_what_was_printed_while_the_link_was_away(node: Node, front: Front, remote: RemoteKernel) -> None:
    """And what was asked meanwhile."""
    request = front.client.execute("import time\nfor i in range(40): print(i, flush=True); time.sleep(0.01)")
    front.until_text(request, "0\n")
    streams = len(node.streams)
    node.streams[-1].stall()
    wait_for(lambda: remote.link_state == "away", "the link's end")
    later = front.client.execute("print('later')")
    wait_for(lambda: len(node.streams) > streams and remote.link_state == "up", "the link's return")
    text = front.finish(request).text
    assert text.endswith("".join(f"{i}\n" for i in range(10, 40)))
    assert front.finish(later).text == "later\n"
