"""The type of options that are times."""

from __future__ import annotations

import argparse

import pytest

from jupyter_gpu_kernel.cli.arguments import MONTH, span


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 90), ("1.5", 1.5), ("0.5s", 0.5), ("90m", 5400), ("90min", 5400), ("24h", 86400)),
        *(("7d", 7 * 86400), ("8H", 28800), (" 30d ", MONTH), ("4:00:00", 14400)),
    ],
)
def test_a_time(text: str, seconds: float) -> None:
    assert span(text, 0.1, MONTH) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1", "-1h", "nan", "inf", "1e9", "gpu2", "9999999999999d", "१h"])
def test_a_text_that_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time such as 90 or"):
        span(text)


@pytest.mark.parametrize("text", ["0", "0h", "0.9", "31d", "9" * 9])
def test_a_time_out_of_range(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time from 1 to 2,592,000 seconds"):
        span(text, 1, MONTH)
