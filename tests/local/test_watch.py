"""What fits on the screen of `--watch`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_kernel.cli.show.watch import fit
from jupyter_gpu_kernel.cli.verb import Listing
from jupyter_gpu_kernel.errors import AgentError

ROWS = [f"row {i}" for i in range(10)]


def listing(rows: list[str], *errors: str) -> Listing:
    return Listing([{"error": AgentError(error).to_json()} for error in errors], "\n".join(rows))


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
    assert fit("title", listing(ROWS), [], 80, rows) == shown


def test_errors_are_above_the_list() -> None:
    found = listing(ROWS, "gpu1: it is gone\nLook there.")
    shown = fit("title", found, [AgentError("gpu2: \x1b[2Jit, too")], 80, 8)
    errors = ["gpu1: it is gone", "Look there.", "gpu2: ?[2Jit, too"]
    assert shown == ["title", *errors, "", *ROWS[:2], "… 8 more"]
    assert fit("title", listing([], "word " * 8), [], 20, 9)[1:3] == ["word word word word"] * 2


def test_without_a_row_it_says_so() -> None:
    assert fit("title", Listing([], "", "Nothing."), [], 20, 9) == ["title", "", "Nothing."]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(), max_size=20), st.lists(st.text(), max_size=5), st.integers(1, 40), st.integers(1, 20)
)
def test_nothing_is_higher_than_the_screen(
    lines: list[str], errors: list[str], columns: int, rows: int
) -> None:
    assert len(fit("title", listing(lines, *errors), [], columns, rows)) <= rows
