"""Runs episodes, in several processes, and shrinks the plan of one that fails."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from .drawing import draw
from .episode import Episode
from .gpus import PROGRAM
from .plan import Plan
from .world import Failure, World

CHUNK = 100
"""Seeds that a process runs before it ends, or looks for garbage."""


@dataclass(frozen=True)
class Result:
    """What became of one seed. `failure`: "" if all is well; `kind`: its first word, which shrinking keeps."""

    seed: int
    steps: int
    faults: dict[str, int]
    states: frozenset[bytes]
    digest: str
    kind: str = ""
    failure: str = ""


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder in memory for the files of hubs and keepers. Its path is short, as the names of sockets have to be."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="jgk-simulation-", dir=memory) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        # Else each start of a kernel looks whether the user's folder can be written to, and where nvidia-smi is.
        patch.setenv("IPYTHONDIR", folder)
        patch.setenv("PATH", folder)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        Path(folder, PROGRAM).touch(0o755)
        yield Path(folder)


def run(plan: Plan, folder: Path, *, traced: bool = False) -> tuple[Result, World]:
    """Run one episode; a failure is in the result."""
    episode = Episode(plan, folder / f"{plan.seed}", traced=traced)
    kind = failure = ""
    try:
        episode.run()
    except Failure as error:
        kind, failure = error.kind, str(error)
    except Exception as error:
        kind, failure = "exception", f"{type(error).__name__}: {error}"
    finally:
        episode.close()
    world = episode.world
    states = frozenset(hashlib.blake2b(repr(one).encode(), digest_size=8).digest() for one in world.states)
    return Result(plan.seed, world.steps, episode.faults, states, world.digest, kind, failure), world


def run_seeds(seeds: Iterable[int]) -> list[Result]:
    """Run the episodes of these seeds in this process."""
    collects = gc.isenabled()
    gc.disable()
    gc.freeze()  # the modules are no garbage: without this, each search for garbage goes through them
    try:
        with workplace() as folder:
            return [run(draw(seed), folder)[0] for seed in seeds]
    finally:
        if collects:
            gc.enable()
            gc.collect()


def run_all(seeds: range, jobs: int) -> Iterator[Result]:
    """Run the episodes of these seeds, in so many processes; yield the results in the order of the seeds."""
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    # A process ends with its chunk, which takes less time than to look for garbage.
    with multiprocessing.get_context("fork").Pool(jobs, gc.disable, maxtasksperchild=1) as pool:
        for results in pool.imap(run_seeds, chunks):
            yield from results


class Summary:
    """What the episodes of a run have in common."""

    def __init__(self) -> None:
        self.episodes = self.steps = 0
        self.faults: Counter[str] = Counter()
        self.states: set[bytes] = set()
        self.failed: list[Result] = []
        self._hash = hashlib.blake2b(digest_size=16)
        self._began = time.monotonic()

    def add(self, result: Result) -> None:
        """Add one episode."""
        self.episodes += 1
        self.steps += result.steps
        self.faults.update(result.faults)
        self.states |= result.states
        self._hash.update(result.digest.encode())
        if result.failure:
            self.failed.append(result)

    def json(self) -> dict[str, Any]:
        """Return {episodes, steps, faults {kind: n}, states, failed [seed], hash, seconds}."""
        return {
            "episodes": self.episodes,
            "steps": self.steps,
            "faults": dict(sorted(self.faults.items())),
            "states": len(self.states),
            "failed": [one.seed for one in self.failed],
            "hash": self._hash.hexdigest(),
            "seconds": round(time.monotonic() - self._began, 1),
        }


def shrink(plan: Plan, kind: str, most: int = 300) -> Plan:
    """Return a plan with fewer decisions that fails in the same way."""
    with workplace() as folder:
        tries = 0

        def fails(smaller: Plan) -> bool:
            nonlocal tries
            tries += 1
            return tries <= most and run(smaller, folder)[0].kind == kind

        changed = True
        while changed:
            changed = False
            for smaller in _smaller(plan):
                if fails(smaller):
                    plan, changed = smaller, True
                    break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    for place in reversed(range(len(plan.decisions))):
        yield plan.without(place)
    for place, decision in enumerate(plan.decisions):
        for cell in range(len(decision.arguments.get("cells", ()))):
            cells = list(decision.arguments["cells"])
            if len(cells) > 1:
                del cells[cell]
                yield _with(plan, place, cells)
            for action in range(len(cells[cell]) if len(cells) == len(decision.arguments["cells"]) else 0):
                changed = [list(one) for one in cells]
                del changed[cell][action]
                yield _with(plan, place, changed)


def _with(plan: Plan, place: int, cells: list[Any]) -> Plan:
    decisions = list(plan.decisions)
    decisions[place] = replace(decisions[place], arguments={**decisions[place].arguments, "cells": cells})
    return replace(plan, decisions=tuple(decisions))
