"""`python -m tests.simulation --seeds 0-9999`: run episodes, and exit with 1 if one of them has shown a bug.

`--seed N --trace` replays one, and prints what happened. A run of a million episodes needs no more memory than one of a
thousand; it goes on after failures, and prints to stderr how far it is. SIGINT ends it with the summary so far.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys

from . import runner
from .drawing import draw
from .shrinking import shrink
from .summary import Summary

_REPORTED = 10_000
"""Episodes after which a run says how far it is."""


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0-999", metavar="FIRST-LAST", help="the episodes to run")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: print all that happened")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--table", action="store_true", help="print the summary as a table in Markdown")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _replay(arguments.seed, trace=arguments.trace)
    first, _, last = arguments.seeds.partition("-")
    summary = _run_all(range(int(first), int(last or first) + 1), arguments.jobs)
    if arguments.json:
        print(json.dumps(summary.json()))
    elif arguments.table:
        print(summary.table())
    else:
        print(", ".join(f"{name}: {value}" for name, value in summary.json().items()))
    for seed, kind in list(summary.failed.items())[:1]:
        print(f"The decisions of seed {seed} that suffice:\n{shrink(draw(seed), kind)}", file=sys.stderr)
    return int(bool(summary.failed))


def _run_all(seeds: range, jobs: int) -> Summary:
    summary = Summary()
    with contextlib.suppress(KeyboardInterrupt):
        for result in runner.run_all(seeds, jobs):
            summary.add(result)
            if result.failure:
                print(f"seed {result.seed}: {result.failure}", file=sys.stderr, flush=True)
            if summary.episodes % _REPORTED == 0:
                so_far = f"{summary.episodes:,} of {len(seeds):,} episodes, {len(summary.failed)} have failed"
                print(so_far, file=sys.stderr, flush=True)
    return summary


def _replay(seed: int, *, trace: bool) -> int:
    plan = draw(seed)
    with runner.workplace() as folder:
        result, world = runner.run(plan, folder, traced=trace)
    print(plan)
    for line in world.trace or ():
        print(line)
    print(f"seed {seed}: {result.failure or 'all is well'} ({result.steps} steps, {result.digest})")
    return int(bool(result.failure))


if __name__ == "__main__":
    sys.exit(main())
