"""The measured values, and the tables made of them."""

from __future__ import annotations

import statistics
from typing import Any

TITLES = {
    "execute_p50": "a cell, p50, ms",
    "execute_p99": "a cell, p99, ms",
    "cpu": "processor time for a cell, all processes, ms",
    "websocket_p50": "a cell through jupyter_server, p50, ms",
    "websocket_p99": "a cell through jupyter_server, p99, ms",
    "websocket_extension_p50": "the same with our server extension, p50, ms",
    "websocket_extension_p99": "the same with our server extension, p99, ms",
    "echo_idle_p50": "control channel, idle, p50, ms",
    "echo_idle_p99": "control channel, idle, p99, ms",
    "echo_bulk_p50": "control channel while a cell displays 100 MB, p50, ms",
    "echo_bulk_p99": "control channel while a cell displays 100 MB, p99, ms",
    "lines_100k": "100,000 lines, s",
    "display_50mb": "display of 50 MB, one letter, s",
    "display_50mb_image": "display of 50 MB, random bytes in base64, s",
    "display_1kb": "display of 1 KB, ms",
    "display_10kb": "display of 10 KB, ms",
    "display_100kb": "display of 100 KB, ms",
    "display_1mb": "display of 1 MB, ms",
    "display_10mb": "display of 10 MB, ms",
    "code_1mb": "a cell of 1 MB of code, ms",
    "start_ready": "start to kernel_info, s",
    "start_first_cell": "start to the first cell's reply, s",
    "start_gpu_first_cell": "the same with a GPU, node idle, s",
    "cold_first_cell": "the same without a connection (cold), s",
    "ssh_true": "`ssh -J login node true`, s",
    "storm_interrupt": "interrupt of a cell that prints 1 MB lines, to its end, s",
    "storm_memory": "memory that its kernel has needed, MiB",
    "restart": "restart to the next cell's reply, s",
}


class Results:
    """What was measured: values in seconds, by round trip, measured quantity, way and round."""

    def __init__(self) -> None:
        self._values: dict[float, dict[str, dict[str, dict[int, float]]]] = {}
        self.ways: list[str] = []
        self.machine: dict[float, str] = {}
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
        return sorted(self._values)

    def names(self, delay: float) -> list[str]:
        """What was measured, in the order of the titles."""
        return [name for name in TITLES if name in self._values[delay]]

    def values(self, delay: float, name: str, way: str) -> dict[int, float]:
        """By round."""
        return self._values[delay][name].get(way, {})

    def reference(self, delay: float) -> str:
        """The way that others are compared with: no way is as fast as bare on a long path."""
        return "ssh" if delay and "ssh" in self.ways else "bare"

    def ratio(self, delay: float, name: str, way: str) -> float | None:
        """To the reference, the median of the rounds' ratios: what disturbs a whole round hits both alike."""
        ours, theirs = self.values(delay, name, way), self.values(delay, name, self.reference(delay))
        common = ours.keys() & theirs.keys()
        return statistics.median(ours[number] / theirs[number] for number in common) if common else None

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Results:
        results = cls()
        results.declare(content["ways"])
        for delay, rounds in content["rounds"].items():
            for number, ways in enumerate(rounds):
                for way, values in ways.items():
                    results.add(float(delay), number, way, values)
        results.machine = {float(delay): text for delay, text in content["machine"].items()}
        results.errors = content["errors"]
        return results

    def rounds(self, delay: float) -> int:
        """How many there have been."""
        numbers = [n for ways in self._values.get(delay, {}).values() for v in ways.values() for n in v]
        return max(numbers, default=-1) + 1

    def counts(self, delays: list[float]) -> str:
        """How often each quantity was measured, in words: measures may have been added with `--append`."""
        numbers = [len(v) for delay in delays for ways in self._values[delay].values() for v in ways.values()]
        least, most = min(numbers), max(numbers)
        return f"{least}" if least == most else f"{least} to {most}"

    def to_json(self) -> dict[str, Any]:
        """{"ways": …, "rounds": {round trip: [{way: {quantity: seconds}}]}, "errors": …}"""
        rounds: dict[str, list[dict[str, dict[str, float]]]] = {}
        for delay, names in self._values.items():
            found = rounds[f"{delay:g}"] = [{} for _ in range(self.rounds(delay))]
            for name, ways in names.items():
                for way, values in ways.items():
                    for number, value in values.items():
                        found[number].setdefault(way, {})[name] = value
        return {
            "ways": self.ways,
            "machine": {f"{delay:g}": text for delay, text in self.machine.items()},
            "rounds": rounds,
            "errors": self.errors,
        }


def markdown(results: Results) -> str:
    """One table for each round trip: medians, least and most, ratios."""
    text = []
    for delay in results.delays:
        text += [
            f"### Round trip {delay:g} ms",
            "",
            f"Rounds: {results.counts([delay])}; {results.machine[delay]}.",
            "",
        ]
        text += [f"Times: median (least–most) **ratio to {results.reference(delay)}**.", ""]
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
    ratio = results.ratio(delay, name, way) if way not in ("bare", results.reference(delay)) else None
    shown = f" **{ratio:.2f} ×**" if ratio else ""
    return f"{median} ({least}–{most}){shown}"
