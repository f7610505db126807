"""GPU hours and idle shares, summed over the rows that the operation `history` returns: for `gpus --history`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

DEFAULT = "24h"
LONGEST = 30 * 86400
"""Seconds for which a node keeps the story of a kernel that has ended."""
UNKNOWN = "Of some of this time it is unknown whether a cell ran; IDLE leaves that out."
_DURATION = re.compile(r"([0-9]{1,9})(m|min|h|d)")
_UNITS = {"m": 60, "min": 60, "h": 3600, "d": 86400}


def duration(text: str) -> int:
    """The type of --history: seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not seconds:
        raise argparse.ArgumentTypeError(
            f"{text!a} is not a time such as 90m, 24h or 7d; names come before it"
        )
    if seconds > LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!a} is longer than 30d: nodes keep the logs of kernels for 30 days"
        )
    return seconds


class Hours(NamedTuple):
    """Seconds in which GPUs were held, and in which a cell ran there; it is unknown for `unknown` of them."""

    held: float
    busy: float
    unknown: float

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]]) -> Hours:
        """The sum of the rows."""
        sums = (
            sum(_seconds(row.get(key)) for row in rows)
            for key in ("seconds_held", "seconds_busy", "seconds_unknown")
        )
        return cls(*sums)

    @property
    def cells(self) -> tuple[str, str, str]:
        """The time held, the time busy, and the share of idle time, as far as they are known."""
        known = self.held - self.unknown
        if known < 1:
            return (_long(self.held), "?", "?")
        idle = 100 * max(0.0, 1 - self.busy / known)
        return (_long(self.held), _long(self.busy), f"{idle:.0f} %")


def groups(rows: Sequence[dict[str, Any]], *keys: str) -> list[list[dict[str, Any]]]:
    """The rows that have the same values of these keys, in the order in which these appear."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(str(row.get(key)) for key in keys), []).append(row)
    return list(found.values())


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e12 else 0.0


def _long(seconds: float) -> str:
    """The time, with a precision of about one per cent."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
