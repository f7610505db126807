"""The table of `gpus --history`."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_kernel.cli.show import tables
from jupyter_gpu_kernel.cli.show.tables import UNKNOWN
from jupyter_gpu_kernel.hub import validate


def row(node: str, index: int, kernel: str, held: float, busy: float | None, unknown: float = 0.0) -> Any:
    return {
        "node": node, "hop": node, "index": index, "uuid": f"GPU-{index}", "name": "A100", "kernel": kernel,
        "notebook": "a.ipynb", "from": 10_000.0, "to": None if kernel == "k1" else 20_000.0,
        "seconds_held": held * 3600, "seconds_unknown": unknown * 3600,
        "seconds_busy": None if busy is None else busy * 3600,
    }  # fmt: skip


def cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """NODE, GPU, HELD, BUSY and IDLE of each line."""
    lines = [re.split("  +", line) for line in tables.history(rows).splitlines()[1:]]
    return [line[:2] + line[2 if line[1] == "total" else 3 :][:3] for line in lines if len(line) > 3]


def test_times_are_summed_over_kernels_and_nodes() -> None:
    rows = [row("gpu1", 0, "k1", 2, 1), row("gpu1", 1, "k2", 4, 0.01), row("gpu2", 0, "k3", 6, 6)]
    assert cells([*rows, row("gpu1", 0, "k1", 2, 0)]) == [
        ["gpu1", "0", "4 h", "1 h", "75 %"],
        ["gpu1", "1", "4 h", "36 s", "100 %"],
        ["gpu2", "0", "6 h", "6 h", "0 %"],
        ["gpu1", "total", "8 h", "1 h 1 min", "87 %"],
        ["gpu2", "total", "6 h", "6 h", "0 %"],
        ["all", "total", "14 h", "7 h 1 min", "50 %"],
    ]
    assert UNKNOWN not in tables.history(rows) and "now" in tables.history(rows).splitlines()[1]


def test_what_is_unknown_is_not_idle() -> None:
    rows = [row("gpu1", 0, "k1", 4, 1, unknown=2), row("gpu1", 1, "k2", 10, None, unknown=10)]
    assert cells(rows) == [
        ["gpu1", "0", "4 h", "1 h", "50 %"],
        ["gpu1", "1", "10 h", "?", "?"],
        ["all", "total", "14 h", "1 h", "50 %"],
    ]
    assert tables.history(rows).endswith(UNKNOWN)


VALUES = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9) | st.just("\x1b[2J\n")


@settings(max_examples=80, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(list(row("n", 0, "k", 0, 0))), VALUES), max_size=4))
def test_whatever_a_node_says(sent: list[dict[str, Any]]) -> None:
    required = {"uuid": "GPU-1", "kernel": "k1", "from": 1.0}
    history = [{**one, **required} for one in sent]
    rows = validate.answer("history", {"history": history})["history"]
    assert all(line.isprintable() and len(line) < 4000 for line in tables.history(rows).split("\n"))
