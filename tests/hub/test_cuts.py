"""The promise: whatever the stream does, front ends get every message exactly once and in order.

One kernel does the same things over and over; the streams to it tear, stall and break where a seed says.
benchmarks/soak.py does it with as many seeds as one has time for.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from exchange import Bystander, Item, Outcome, Tally, script
from fronts import Front
from streams import Faults, LoopThread, Node, wait_for

from jupyter_gpu_kernel.agent.story import read_story
from jupyter_gpu_kernel.hub.front_end.front_ends import FrontEndSpec
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]


@pytest.fixture(scope="module")
def remote(node: Node, loop: LoopThread) -> RemoteKernel:
    return loop.kernel(loop.link(node))


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


@pytest.fixture(scope="module")
def front(remote: RemoteKernel, tally: Tally) -> Iterator[Front]:
    with Front(remote.edge.connection, tally) as front:
        yield front


@pytest.fixture(scope="module")
def undisturbed(front: Front) -> list[Item]:
    return script(front)


@pytest.mark.parametrize("seed", range(5))
def test_exactly_once_and_in_order(
    seed: int,
    node: Node,
    loop: LoopThread,
    remote: RemoteKernel,
    front: Front,
    undisturbed: list[Item],
    tally: Tally,
) -> None:
    rng = random.Random(seed)
    (shown,) = remote.front_ends
    spec = FrontEndSpec(shown.edge.connection, rate_limited=rng.random() < 0.5)
    loop.call(remote.front_ends.reconnect, shown, spec)
    node.faults = lambda: Faults.drawn(rng)
    before = len(node.streams)
    node.streams[-1].cut()
    try:
        with Bystander(remote.edge.connection) as bystander:
            seen = script(front)
    finally:
        node.faults = lambda: None
        node.streams[-1].cut()
    assert Outcome.of(seen, undisturbed) == (0, 0, 0)
    assert seen == undisturbed
    assert len(node.streams) > before, "nothing was cut"
    assert front.run("print('in step')").text == "in step\n"  # nothing of before comes again
    assert tally.wrong(front.client.session.session) == bystander.wrong == []


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


def test_what_was_printed_while_the_keeper_did_not_read(
    node: Node, front: Front, remote: RemoteKernel
) -> None:
    """As on a node with so much load that the keeper gets no CPU. libzmq drops messages above 1000 by default."""
    story = read_story(node.handlers.root.story(remote.kernel_id))
    keeper = next(entry["keeper"] for entry in story if entry["event"] == "start")
    text = front.run(f"""
import os, signal
os.kill({keeper}, signal.SIGSTOP)
try:
    for i in range(5000): print(i, flush=True)
finally:
    os.kill({keeper}, signal.SIGCONT)
""").text
    assert text == "".join(f"{i}\n" for i in range(5000))
