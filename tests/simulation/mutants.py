"""Planted bugs, and whether the simulation finds them: `python -m tests.simulation.mutants`, or `make mutants`.

A mutant replaces a text of one module, in memory, in a process of its own. A text that is not found once is an error:
the module has changed, and so must the mutant.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import CodeType, ModuleType
from typing import Any, NamedTuple

PACKAGE = "jupyter_gpu_kernel."
SEEDS = 10_000
CHUNK = 10


class Mutant(NamedTuple):
    """A bug: in this module (without the package's name) the text `old` becomes `new`."""

    name: str
    module: str
    old: str
    new: str


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads the module with the bug."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname) or ""
        if source.count(self._mutant.old) != 1:
            raise LookupError(
                f"{self._mutant.module} has {source.count(self._mutant.old)} times: {self._mutant.old}"
            )
        return compile(
            source.replace(self._mutant.old, self._mutant.new), self.path, "exec", dont_inherit=True
        )


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module with the bug, before others do."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != PACKAGE + self._mutant.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert found is not None and found.origin is not None
        loader = _Loader(fullname, found.origin, self._mutant)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


def plant(mutant: Mutant) -> None:
    """Let this process import the module with the bug. Raises LookupError if the text is not there once."""
    if any(name.startswith(PACKAGE) for name in sys.modules):
        raise RuntimeError("the package has been imported already")
    sys.meta_path.insert(0, _Finder(mutant))
    importlib.import_module(PACKAGE + mutant.module)


def _hunt(mutant: Mutant, first: int, last: int, shrinks: bool, answer: Any) -> None:
    try:
        plant(mutant)
        answer.send((first == 0 and _try_plans()) or _try_seeds(first, last, shrinks))
    except LookupError as error:
        answer.send({"error": str(error)})


def _try_plans() -> dict[str, Any]:
    """Return {"plan", "failure"} of the first plan that has shown a bug before and shows this one; {} if none does."""
    from . import regressions, runner

    with runner.workplace() as folder:
        for name, plan in regressions.PLANS.items():
            result, _ = runner.run(plan, folder)
            if result.failure:
                return {"plan": name, "failure": result.failure[:150]}
    return {}


def _try_seeds(first: int, last: int, shrinks: bool) -> dict[str, Any]:
    """Return {"seed", "failure"} of the first episode that finds the bug; {} if none does."""
    from . import drawing, runner, shrinking

    for at in range(first, last, CHUNK):
        for result in runner.run_seeds(range(at, min(last, at + CHUNK))):
            if result.failure:
                found: dict[str, Any] = {"seed": result.seed, "failure": result.failure[:150]}
                if shrinks:
                    found["shrunk"] = shrinking.shrink(drawing.draw(result.seed), result.kind).to_json()
                return found
    return {}


def hunt(mutant: Mutant, first: int, last: int, *, shrinks: bool = False) -> dict[str, Any]:
    """Return {"plan", "failure"} of the regression plan that finds the bug, which are tried if `first` is 0; else
    {"seed", "failure"} of the first episode that finds it, with its "shrunk" plan if that is wanted; {} if none does,
    or {"error"}."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_hunt, args=(mutant, first, last, shrinks, theirs))
    process.start()
    theirs.close()
    try:
        return dict(ours.recv())
    except EOFError:
        return {"error": "its process has ended"}
    finally:
        process.join()


def _row(row: dict[str, Any]) -> str:
    if "error" in row:
        found = row["error"]
    elif "plan" in row:
        found = f"{row['failure']} (plan: {row['plan']})"
    else:
        found = f"seed {row['seed']}: {row['failure']}" if "seed" in row else "alive"
    return f"{row['mutant']:70} {found}"[:180]


def main() -> int:
    """Print the table; exit with 1 if a text was not found."""
    from .planted import MUTANTS

    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="so many episodes for each at most")
    parser.add_argument("--only", default="", help="those with this in their names")
    parser.add_argument("--first", type=int, default=0, help="begin with this seed")
    parser.add_argument("--shrink", action="store_true", help="print the decisions that suffice, as JSON")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    mutants = [one for one in MUTANTS if arguments.only in one.name]
    began = time.monotonic()
    rows = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        first, last, shrinks = arguments.first, arguments.seeds, arguments.shrink
        hunts = pool.map(lambda one: hunt(one, first, last, shrinks=shrinks), mutants)
        for mutant, result in zip(mutants, hunts, strict=True):
            rows.append({"mutant": mutant.name, **result})
            if not (arguments.json or arguments.shrink):
                print(_row(rows[-1]), flush=True)
    if arguments.json or arguments.shrink:
        print(json.dumps(rows))
    else:
        count = sum("failure" in row for row in rows)
        print(f"{count} of {len(rows)} found, in {time.monotonic() - began:.0f} s")
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
