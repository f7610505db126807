"""Runs episodes, in several processes."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import multiprocessing
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .drawing import draw
from .episode import Episode
from .gpus import PROGRAM
from .plan import Plan
from .world import Failure, World

CHUNK = 100
"""Seeds that one process runs. It never looks for garbage, as the end of the process takes less time."""


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
    """Run the episodes of these seeds in this process, and then look for garbage if that is usual here."""
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
    with multiprocessing.get_context("fork").Pool(jobs, gc.disable, maxtasksperchild=1) as pool:
        for results in pool.imap(run_seeds, chunks):
            yield from results
