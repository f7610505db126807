"""The table of docs/benchmarks/summary.md: medians of the most important quantities, between two comments."""

from __future__ import annotations

import statistics
from pathlib import Path

from report import Results

_BEGIN, _END = "<!-- bench: written by make bench -->\n", "<!-- end of bench -->\n"
_WAYS = {
    "bare": "on the node itself",
    "ssh": "`ssh`, five forwards",
    "sshpyk": "sshpyk",
    "provisioner": "this, in JupyterLab",
    "argv": "this, by argv",
}
_ROWS = {
    "execute_p50": "a cell",
    "websocket_p50": "a cell through jupyter_server",
    "display_50mb": "display of 50 MB, one letter",
    "display_50mb_image": "display of 50 MB, random bytes",
    "start_gpu_first_cell": "start with a GPU (others: without)",
    "restart": "restart to the next cell",
}


def write(results: Results, file: Path) -> None:
    """Replace what stands between the comments."""
    before, begin, rest = file.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"{file} has no place for the table")
    file.write_text(before + begin + summary(results) + end + after)


def summary(results: Results) -> str:
    """One table with all round trips, and what was measured on what."""
    ways = [way for way in _WAYS if way in results.ways]
    lines = [f"| round trip | | {' | '.join(_WAYS[way] for way in ways)} |", "|---|---|" + "---|" * len(ways)]
    for delay in results.delays:
        for name in (name for name in _ROWS if name in results.names(delay)):
            columns = [list(results.values(delay, name, way).values()) for way in ways]
            lines.append(f"| {delay:g} ms | {_ROWS[name]} | {' | '.join(_cells(columns))} |")
    machine = results.machine[results.delays[0]]
    return "\n".join(lines) + f"\n\nMedians; rounds: {results.counts(results.delays)}; {machine}.\n"


def _cells(columns: list[list[float]]) -> list[str]:
    """The medians of one row, all in the same unit."""
    medians = [statistics.median(values) if values else None for values in columns]
    short = max(filter(None, medians), default=0.0) < 0.2
    scale, form = (1e3, "{:.1f} ms") if short else (1.0, "{:.2f} s")
    return ["–" if median is None else form.format(median * scale) for median in medians]
