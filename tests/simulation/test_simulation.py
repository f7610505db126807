"""Episodes of simulated lives: see `tests/simulation/__init__.py`. `make simulate` runs more of them."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from .drawing import draw
from .plan import Decision, Plan
from .planted import MUTANTS
from .regressions import BASE, PLANS
from .runner import run, workplace

ROOT = Path(__file__).parents[2]
LIVES = 5900
"""Episodes of each run of the tests: about 80 seconds on two processors that do nothing else."""
TWICE = 200
BUG = "the resume begins one number too late"


def simulate(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
def test_many_lives() -> None:
    done = simulate("--seeds", f"0-{LIVES - 1}", "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_a_seed_decides_everything() -> None:
    """Two processes see the same, whatever the order in which they iterate over sets of strings."""
    runs = [
        simulate("--seeds", f"0-{TWICE - 1}", "--json", "--jobs", "1", hash_seed=seed) for seed in ("1", "2")
    ]
    first, second = (json.loads(done.stdout) for done in runs)
    for summary in (first, second):
        summary.pop("seconds")
    assert first == second


@pytest.mark.parametrize("name", PLANS)
def test_what_was_mended(name: str) -> None:
    with workplace() as folder:
        result, _ = run(PLANS[name], folder)
    assert not result.failure


def test_a_hub_that_is_killed_before_it_opens_a_kernel_leaves_no_coroutine(
    recwarn: pytest.WarningsRecorder,
) -> None:
    plan = replace(BASE, seed=513, delay=0.1, rate=2e5, knows_info=False, ids_collide=True).with_decisions(
        Decision(0.784, "node rebooted", {"seconds": 0.05}),
        Decision(2.605, "hub killed in a send", {"seconds": 4.0, "sends": 2, "writes": True}),
        Decision(13.157, "cells", {"cells": [[]], "stop": True, "gap": 0.0}),
        Decision(13.655, "cells", {"cells": [[]], "stop": True, "gap": 0.0}),
    )
    with workplace() as folder:
        run(plan, folder)
    gc.collect()
    assert not [one for one in recwarn if "never awaited" in str(one.message)]


def test_the_summary_is_a_table_too() -> None:
    done = simulate("--seeds", "0-4", "--table", "--jobs", "1")
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    table = {row[0]: row[1] for row in rows}
    assert (table["episodes"], table["failed"]) == ("5", "none"), done.stderr
    assert sum(int(count) for name, count in table.items() if name.startswith("fault: ")) > 0


def test_a_plan_survives_json() -> None:
    plan = draw(3)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_the_texts_of_all_mutants_are_there() -> None:
    """Also in modules that an episode imports late: a change there must not leave a mutant without its bug."""
    package = ROOT / "jupyter_gpu_kernel"
    for mutant in MUTANTS:
        source = (package / (mutant.module.replace(".", "/") + ".py")).read_text(encoding="utf-8")
        assert source.count(mutant.old) == 1, mutant.name
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.timeout(300)
def test_a_planted_bug_is_found() -> None:
    """In a process that has not imported the package."""
    command = [sys.executable, "-m", "tests.simulation.mutants", "--only", BUG, "--seeds", "200", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)
    assert row.get("failure"), row
