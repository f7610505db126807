"""Which GPUs are near each other: recorded outputs of `nvidia-smi topo -m`, and the set that is chosen."""

from __future__ import annotations

from typing import List

import pytest

from jupyter_gpu_kernel.agent.gpus.devices.topology import best_set, parse_topology

TWO_PAIRS = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tSYS\tNV4\tSYS\t0-31\t0\t\tN/A\n"
    "GPU1\tSYS\t X \tSYS\tNV4\t32-63\t1\t\tN/A\n"
    "GPU2\tNV4\tSYS\t X \tSYS\t0-31\t0\t\tN/A\n"
    "GPU3\tSYS\tNV4\tSYS\t X \t32-63\t1\t\tN/A\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n"
)
WITH_NIC = (
    "\tGPU0\tGPU1\tGPU2\tmlx5_0\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNODE\tPIX\tPXB\t0-23\t0\n"
    "GPU1\tNODE\t X \tPHB\tSYS\t0-23\t0\n"
    "GPU2\tPIX\tPHB\t X \tPXB\t0-23\t0\n"
    "mlx5_0\tPXB\tSYS\tPXB\t X \t\t\n"
)


def test_a_matrix_with_nvlink() -> None:
    links = parse_topology(TWO_PAIRS)
    assert set(links) == {(a, b) for a in range(4) for b in range(4) if a != b}
    assert links[0, 2] == links[2, 0] > links[0, 1] == links[0, 3]


def test_a_matrix_with_a_network_card() -> None:
    links = parse_topology(WITH_NIC)
    assert links[0, 2] > links[1, 2] > links[0, 1]
    assert all(index < 3 for pair in links for index in pair)


@pytest.mark.parametrize(
    "text", ["", "GPU0", "\tGPU0\nGPU0\t X \t", "Failed to run topology matrix\n", "\tGPUx\n\0"]
)
def test_what_is_no_matrix(text: str) -> None:
    assert parse_topology(text) == {}


@pytest.mark.parametrize(
    "free, count, chosen",
    [
        ([0, 1, 2, 3], 1, [0]),
        ([0, 1, 2, 3], 2, [0, 2]),
        ([1, 2, 3], 2, [1, 3]),
        ([0, 1], 2, [0, 1]),
        ([0, 1, 2, 3], 3, [0, 1, 2]),
    ],
)
def test_the_nearest_are_chosen(free: List[int], count: int, chosen: List[int]) -> None:
    assert best_set(free, count, parse_topology(TWO_PAIRS)) == chosen


def test_without_a_matrix_the_first_are_chosen() -> None:
    assert best_set([3, 1, 0], 2, {}) == [0, 1]


def test_the_slowest_link_of_a_set_counts() -> None:
    """Three links, of which one is slow, are worse than three of middling speed."""
    fast, middling, slow = 9, 3, 0
    links = {(0, 1): fast, (0, 2): fast, (1, 2): slow, (0, 3): middling, (1, 3): middling}
    links.update({(2, 3): slow, (4, 3): middling, (0, 4): middling, (1, 4): middling, (2, 4): slow})
    links.update({(b, a): rank for (a, b), rank in links.items()})
    assert best_set(range(5), 3, links) == [0, 1, 3]


def test_many_gpus_take_no_time() -> None:
    assert best_set(range(32), 16, {}) == list(range(16))
