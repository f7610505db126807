"""Measures this project beside other ways to use a kernel, on a practice cluster of its own.

python benchmarks/bench [--help]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import machine
import network
import summary
from picture import svg
from report import Results, markdown
from ways import OURS, WAYS, Package, Setup, Way, end_processes

MEASURES = (
    *("execute", "websocket", "echo", "lines", "display", "sizes"),
    *("start", "gpu", "restart", "cold", "storm"),
)
QUICK = ("execute", "lines", "display", "start", "restart")


def main() -> None:
    options = _options()
    results = _earlier(options.output) if options.append else Results()
    signal.signal(signal.SIGTERM, _terminate)
    for delay in options.delays if options.rounds else ():
        folder = Path(tempfile.mkdtemp(prefix="jgkb-", dir="/tmp"))
        net = network.make(delay)
        setup = Setup(folder, net)
        ways: list[Way] = []
        try:
            _say(f"{delay:g} ms: {net.description}; setting up")
            ways += _set_up(options, setup, results)
            results.declare([way.name for way in ways])
            results.machine[delay] = machine.description(net.description)
            _measure(options, delay, ways, results)
        finally:
            for way in ways:
                way.close()
            for way in ways:
                way.kill()
            setup.close()
            net.close()
            end_processes(folder)
            if options.keep:
                _say(f"logs: {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)
    print(markdown(results))
    if options.output:
        _write(results, Path(options.output))
    if options.summary:
        summary.write(results, Path(options.summary))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    names = {"type": lambda text: text.split(",")}
    parser.add_argument("--delays", type=_numbers, default=[0, 50], help="round trips in ms (default: 0,50)")
    parser.add_argument("--only", **names, help=f"some measures of {','.join(MEASURES)}")
    parser.add_argument("--ways", **names, default=list(WAYS), help=f"some ways of {','.join(WAYS)}")
    parser.add_argument(
        "--rounds", type=int, help="rounds (default: 7; with --quick: 3; 0: only write the report again)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer measures and rounds")
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="[LABEL=]DIR",
        help="measure another checkout, with its own .venv, too; can be repeated",
    )
    parser.add_argument(
        "--output", metavar="DIR", help="write bench.md, bench.json and a picture for each round trip there"
    )
    parser.add_argument(
        "--summary", metavar="FILE", help="replace the table in this file, docs/benchmarks/summary.md"
    )
    parser.add_argument("--append", action="store_true", help="add rounds to those of DIR/bench.json")
    parser.add_argument("--verbose", action="store_true", help="tell each measure as it ends")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options = parser.parse_args()
    options.only = options.only or (QUICK if options.quick else MEASURES)
    if options.rounds is None:
        options.rounds = 3 if options.quick else 7
    if options.append and not options.output:
        parser.error("--append needs --output")
    for given, known in ((options.only, MEASURES), (options.ways, WAYS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return options


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def _set_up(options: argparse.Namespace, setup: Setup, results: Results) -> Iterator[Way]:
    for name, make in WAYS.items():
        packages = [Package.own(), *map(Package.at, options.package)] if name in OURS else [Package.own()]
        for package in packages if name in options.ways else ():
            try:
                way = make(setup, package)
            except RuntimeError as error:
                _say(f"{name}: {error}")
                results.errors.append(f"{name} {package.label}: {error}")
                continue
            if way:
                yield way
            else:
                _say(f"{name} is not installed here")


def _measure(options: argparse.Namespace, delay: float, ways: list[Way], results: Results) -> None:
    """All measures of all ways, one after the other, in another order in each round."""
    for way in ways:  # or the first measure would run beside the imports of other workers
        way.ask("prepare")
    first = results.rounds(delay)
    for number in range(first, first + options.rounds):
        began = time.monotonic()
        for measure in options.only:
            for way in random.sample(ways, len(ways)):
                asked = time.monotonic()
                values = way.ask(measure)
                if options.verbose:
                    _say(f"  {measure}, {way.name}: {time.monotonic() - asked:.1f} s")
                if "error" in values:
                    values = {"error": f"{measure}: {values['error']}"}
                    _say(f"{way.name}: {values['error']}")
                results.add(delay, number, way.name, values)
        if options.output:  # whatever becomes of the next rounds
            _write(results, Path(options.output))
        _say(f"{delay:g} ms: round {number + 1} took {time.monotonic() - began:.0f} s")


def _earlier(folder: str) -> Results:
    file = Path(folder, "bench.json")
    return Results.from_json(json.loads(file.read_text())) if file.exists() else Results()


def _write(results: Results, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.md").write_text(markdown(results))
    (folder / "bench.json").write_text(json.dumps(results.to_json(), indent=1) + "\n")
    for delay in results.delays:
        (folder / f"bench-{delay:g}ms.svg").write_text(svg(results, delay))


def _terminate(number: int, frame: object) -> None:
    """Clean up, whatever else comes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("ended by SIGTERM")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
