"""GPU hours and idle shares, summed over the rows that the operation `history` returns: for `gpus --history`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...wire.texts import duration

UNKNOWN = "Of some of this time it is unknown whether a cell ran; IDLE leaves that out."


class Hours(NamedTuple):
    """Seconds in which GPUs were held, and in which a cell ran there; it is unknown for `unknown` of them."""

    held: float
    busy: float
    unknown: float

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]]) -> Hours:
        """The sum of the rows."""
        sums = (
            sum(row.get(key) or 0.0 for row in rows)
            for key in ("seconds_held", "seconds_busy", "seconds_unknown")
        )
        return cls(*sums)

    @property
    def cells(self) -> tuple[str, str, str]:
        """The time held, the time busy, and the share of idle time, as far as they are known."""
        known = self.held - self.unknown
        if known < 1:
            return (duration(self.held), "?", "?")
        idle = 100 * max(0.0, 1 - self.busy / known)
        return (duration(self.held), duration(self.busy), f"{idle:.0f} %")


def groups(rows: Sequence[dict[str, Any]], *keys: str) -> list[list[dict[str, Any]]]:
    """The rows that have the same values of these keys, in the order in which these appear."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(str(row.get(key)) for key in keys), []).append(row)
    return list(found.values())
