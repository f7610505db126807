"""Measures this project beside other ways to use a kernel, on a practice cluster of its own.

python benchmarks/bench [--help]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import network
from report import Results, markdown
from ways import MARK, OURS, WAYS, Package, Setup, Way

MEASURES = ("execute", "lines", "display", "sizes", "start", "restart")
QUICK = ("execute", "lines", "display", "start", "restart")


def main() -> None:
    options = _options()
    results = Results()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    for delay in options.delays:
        folder = Path(tempfile.mkdtemp(prefix="jgkb-", dir="/tmp"))
        net = network.make(delay)
        ways: list[Way] = []
        try:
            _say(f"{delay:g} ms: {net.description}; setting up")
            ways += _set_up(options, Setup(folder, net))
            results.declare([way.name for way in ways])
            _measure(options, delay, ways, results)
        finally:
            for way in ways:
                way.close()
            net.close()
            _end_processes(folder)
            if options.keep:
                _say(f"logs: {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)
    print(markdown(results))
    if options.json:
        Path(options.json).write_text(json.dumps(results.to_json(), indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    names = {"type": lambda text: text.split(",")}
    parser.add_argument("--delays", type=_numbers, default=[0, 50], help="round trips in ms (default: 0,50)")
    parser.add_argument("--only", **names, help=f"some measures of {','.join(MEASURES)}")
    parser.add_argument("--ways", **names, default=list(WAYS), help=f"some ways of {','.join(WAYS)}")
    parser.add_argument("--rounds", type=int, help="rounds (default: 7; with --quick: 3)")
    parser.add_argument("--quick", action="store_true", help="fewer measures and rounds")
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="[LABEL=]DIR",
        help="measure another checkout, with its own .venv, too; can be repeated",
    )
    parser.add_argument("--json", metavar="FILE", help="write all values there")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options = parser.parse_args()
    options.only = options.only or (QUICK if options.quick else MEASURES)
    options.rounds = options.rounds or (3 if options.quick else 7)
    for given, known in ((options.only, MEASURES), (options.ways, WAYS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return options


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def _set_up(options: argparse.Namespace, setup: Setup) -> Iterator[Way]:
    for name, make in WAYS.items():
        packages = [Package.own(), *map(Package.at, options.package)] if name in OURS else [Package.own()]
        for package in packages if name in options.ways else ():
            yield make(setup, package)


def _measure(options: argparse.Namespace, delay: float, ways: list[Way], results: Results) -> None:
    """All measures of all ways, one after the other, in another order in each round."""
    for number in range(options.rounds):
        began = time.monotonic()
        for measure in options.only:
            for way in random.sample(ways, len(ways)):
                values = way.ask(measure)
                if "error" in values:
                    _say(f"{way.name}: {measure}: {values['error']}")
                results.add(delay, number, way.name, values)
        _say(f"{delay:g} ms: round {number + 1} of {options.rounds} took {time.monotonic() - began:.0f} s")


def _end_processes(folder: Path) -> None:
    """Kill what a run has left: hubs, keepers, kernels. They have the run's folder in their environment."""
    mark = f"{MARK}={folder}".encode()
    for _ in range(2):
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in entry.read_bytes().split(b"\0"):
                    os.kill(int(entry.parent.name), signal.SIGKILL)
            except OSError:  # another user's, or gone
                continue


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
