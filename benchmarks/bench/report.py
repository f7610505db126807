"""The measured values, and the tables made of them."""

from __future__ import annotations

import statistics
from typing import Any

TITLES = {
    "execute_p50": "a cell, p50, ms",
    "execute_p99": "a cell, p99, ms",
    "lines_100k": "100,000 lines, s",
    "display_50mb": "display of 50 MB, s",
    "display_1kb": "display of 1 KB, ms",
    "display_10kb": "display of 10 KB, ms",
    "display_100kb": "display of 100 KB, ms",
    "display_1mb": "display of 1 MB, ms",
    "display_10mb": "display of 10 MB, ms",
    "code_1mb": "a cell of 1 MB of code, ms",
    "start_ready": "start to kernel_info, s",
    "start_first_cell": "start to the first cell's reply, s",
    "restart": "restart to the next cell's reply, s",
}


class Results:
    """What was measured: values in seconds, by round trip, measured quantity, way and round."""

    def __init__(self) -> None:
        self._values: dict[float, dict[str, dict[str, dict[int, float]]]] = {}
        self.ways: list[str] = []
        self.errors: list[str] = []

    def declare(self, ways: list[str]) -> None:
        """The ways, in the order in which tables show them."""
        self.ways += [way for way in ways if way not in self.ways]

    def add(self, delay: float, number: int, way: str, values: dict[str, Any]) -> None:
        """What one way's worker has answered in one round."""
        rows = self._values.setdefault(delay, {})
        for name, value in values.items():
            if name == "error":
                self.errors.append(f"{delay:g} ms, round {number + 1}, {way}: {value}")
            else:
                rows.setdefault(name, {}).setdefault(way, {})[number] = value

    @property
    def delays(self) -> list[float]:
        return list(self._values)

    def names(self, delay: float) -> list[str]:
        """What was measured, in the order of the titles."""
        return [name for name in TITLES if name in self._values[delay]]

    def values(self, delay: float, name: str, way: str) -> dict[int, float]:
        """By round."""
        return self._values[delay][name].get(way, {})

    def ratio(self, delay: float, name: str, way: str, to: str = "bare") -> float | None:
        """The median of the rounds' ratios: what disturbs a whole round hits both alike."""
        ours, theirs = self.values(delay, name, way), self.values(delay, name, to)
        common = ours.keys() & theirs.keys()
        return statistics.median(ours[number] / theirs[number] for number in common) if common else None

    def to_json(self) -> dict[str, Any]:
        return {
            "values": {
                f"{delay:g}": {
                    name: {way: list(values.values()) for way, values in ways.items()}
                    for name, ways in rows.items()
                }
                for delay, rows in self._values.items()
            },
            "errors": self.errors,
        }


def markdown(results: Results) -> str:
    """One table for each round trip: medians, least and most, ratio to bare."""
    text = []
    for delay in results.delays:
        text += [f"### Round trip {delay:g} ms", ""]
        text += [f"| | {' | '.join(results.ways)} |", "|---|" + "---|" * len(results.ways)]
        for name in results.names(delay):
            cells = [_cell(results, delay, name, way) for way in results.ways]
            text.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
        text.append("")
    if results.errors:
        text += ["Failed:", "", *(f"- {error}" for error in results.errors), ""]
    return "\n".join(text)


def _cell(results: Results, delay: float, name: str, way: str) -> str:
    values = list(results.values(delay, name, way).values())
    if not values:
        return "–"
    scale, digits = (1e3, 1) if TITLES[name].endswith("ms") else (1, 2)
    median, least, most = (
        f"{value * scale:.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    ratio = results.ratio(delay, name, way) if way != "bare" else None
    shown = f" **{ratio:.2f} ×**" if ratio else ""
    return f"{median} ({least}–{most}){shown}"
