"""The types of the arguments of verbs: times, and the IDs of kernels."""

from __future__ import annotations

import argparse
import math
import re

from ..wire.durations import seconds_of

MONTH = 30 * 86400.0
"""Seconds for which a node keeps the story of a kernel that has ended."""
_KERNEL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def add_kernel(parser: argparse.ArgumentParser) -> None:
    """Declare the argument that names a kernel."""
    parser.add_argument(
        "kernel", metavar="ID", type=kernel_id, help="a kernel's ID, as “ps” shows it, or its beginning"
    )


def kernel_id(text: str) -> str:
    """The type of an argument that names a kernel."""
    if not _KERNEL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!a} is not a kernel's ID: “jupyter gpu-kernel ps” shows them")
    return text


def span(text: str, least: float = 0.0, most: float = math.inf) -> float:
    """Return the seconds of an argument. Slurm's way of writing is known, too, if it has a colon."""
    seconds = seconds_of(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!a} is not a time such as 90 or 90s, 30m, 8h, 7d, 4:00:00")
    if not least <= seconds <= most:
        raise argparse.ArgumentTypeError(f"{text!a} is not a time from {least:g} to {most:,.0f} seconds")
    return seconds
