"""What fits on the screen of `--watch`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_kernel.cli.show.watch import fit

ROWS = [f"row {i}" for i in range(10)]


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        (20, ["title", "", *ROWS]),
        (12, ["title", "", *ROWS]),
        (11, ["title", "", *ROWS[:8], "… 2 more"]),
        (4, ["title", "", "row 0", "… 9 more"]),
        (1, ["… 12 more"]),
    ],
)
def test_rows_that_do_not_fit_are_counted(rows: int, shown: list[str]) -> None:
    assert fit("title", ROWS, [], 80, rows) == shown


def test_errors_are_below_and_have_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = fit("title", ROWS, ["gpu1: it is gone\nLook there.", "gpu2: \x1b[2Jit, too"], 80, 12)
    errors = ["", "gpu1: it is gone", "Look there.", "gpu2: ?[2Jit, too"]
    assert shown == ["title", "", *ROWS[:5], "… 5 more", *errors]
    assert fit("title", ROWS[:1], ["word " * 100], 20, 9)[-3:] == ["", "word word word word", "… 24 more"]


@settings(max_examples=100, deadline=None)
@given(
    st.text(), st.lists(st.text(), max_size=20), st.lists(st.text(), max_size=5), st.integers(1, 40),
    st.integers(1, 20),
)  # fmt: skip
def test_nothing_is_larger_than_the_screen(
    title: str, lines: list[str], errors: list[str], columns: int, rows: int
) -> None:
    shown = fit(title, lines, errors, columns, rows)
    assert len(shown) <= rows and all(len(line) <= columns for line in shown)
