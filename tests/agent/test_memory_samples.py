"""How often the node's memory is looked at, and for how long that counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtimes import ManualLoop

from jupyter_gpu_kernel.agent.exit.report import INTERVALS, MAX_AGE, MemorySamples

GIB = 1024 * 1024  # in kB
LEAST, MOST = INTERVALS


class Node:
    """A node of 100 GiB."""

    def __init__(self, folder: Path) -> None:
        self.meminfo = folder / "meminfo"
        self.loop = ManualLoop()

    def available(self, gib: int) -> None:
        self.meminfo.write_text(f"MemTotal: {100 * GIB} kB\nMemAvailable: {gib * GIB} kB\n")

    def samples(self, gib: int) -> MemorySamples:
        self.available(gib)
        return MemorySamples(self.loop, self.meminfo)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(("gib", "interval"), [(90, MOST), (10, 5.0), (1, LEAST)])
def test_the_less_is_available_the_more_often_it_is_sampled(node: Node, gib: int, interval: float) -> None:
    samples = node.samples(gib)
    node.available(0)
    node.loop.advance(interval - 0.1)
    assert samples.least == gib / 100
    node.loop.advance(0.2)
    assert samples.least == 0


def test_a_sample_counts_for_a_while(node: Node) -> None:
    samples = node.samples(1)
    node.available(90)
    for _ in range(int(MAX_AGE) - 1):
        node.loop.advance(1)
    assert samples.least == 0.01
    node.loop.advance(2)
    assert samples.least == 0.9


def test_after_the_end_nothing_is_sampled(node: Node) -> None:
    samples = node.samples(1)
    samples.stop()
    node.available(0)
    node.loop.advance(LEAST + 1)
    assert samples.least == 0.01


@pytest.mark.parametrize("text", ["", "MemTotal: 0 kB\nMemAvailable: 0 kB\n"])
def test_a_system_that_does_not_tell(node: Node, text: str) -> None:
    node.meminfo.write_text(text)
    samples = MemorySamples(node.loop, node.meminfo)
    node.loop.advance(MOST + 1)
    assert samples.least is None
