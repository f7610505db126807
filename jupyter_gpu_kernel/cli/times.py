"""The type of options that are times."""

from __future__ import annotations

import argparse
import math

from ..wire.durations import seconds_of

MONTH = 30 * 86400.0
"""Seconds for which a node keeps the story of a kernel that has ended."""


def span(text: str, least: float = 0.0, most: float = math.inf) -> float:
    """Return the seconds of an argument. Slurm's way of writing is known, too, if it has a colon."""
    seconds = seconds_of(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!a} is not a time such as 90 or 90s, 30m, 8h, 7d, 4:00:00")
    if not least <= seconds <= most:
        raise argparse.ArgumentTypeError(f"{text!a} is not a time from {least:g} to {most:,.0f} seconds")
    return seconds
