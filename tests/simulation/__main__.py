"""`python -m tests.simulation --seeds 0-9999`: run episodes, and exit with 1 if one of them has shown a bug.

`--seed N --trace` replays one, and prints what happened.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from . import runner
from .drawing import draw


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0-999", metavar="FIRST-LAST", help="the episodes to run")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: print all that happened")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _replay(arguments.seed, trace=arguments.trace)
    first, _, last = arguments.seeds.partition("-")
    summary = runner.Summary()
    for result in runner.run_all(range(int(first), int(last or first) + 1), arguments.jobs):
        summary.add(result)
        if result.failure and not arguments.json:
            print(f"seed {result.seed}: {result.failure}", flush=True)
    if arguments.json:
        print(json.dumps(summary.json()))
    else:
        print(", ".join(f"{name}: {value}" for name, value in summary.json().items()))
    if summary.failed:
        _show_shrunk(summary.failed[0])
    return int(bool(summary.failed))


def _replay(seed: int, *, trace: bool) -> int:
    plan = draw(seed)
    with runner.workplace() as folder:
        result, world = runner.run(plan, folder, traced=trace)
    print(plan)
    for line in world.trace or ():
        print(line)
    print(f"seed {seed}: {result.failure or 'all is well'} ({result.steps} steps, {result.digest})")
    return int(bool(result.failure))


def _show_shrunk(failed: runner.Result) -> None:
    plan = runner.shrink(draw(failed.seed), failed.kind)
    print(f"The decisions of seed {failed.seed} that suffice:\n{plan}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
