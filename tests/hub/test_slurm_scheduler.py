"""The hub's scheduler against a real Slurm: what it reads of jobs that wait, run and end, and of refusals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from runtimes import Clock
from slurm import Slurm
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import SettingsError
from jupyter_gpu_kernel.hub.connections.connect import Connections
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.node import Node
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.slurm.dialect import JobState
from jupyter_gpu_kernel.hub.slurm.scheduler import Scheduler
from jupyter_gpu_kernel.hub.slurm.words import JobEnd


class Jobs:
    """A scheduler, the states that it told of each job, and a clock that lets it look at once."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.reported: dict[str, list[JobState]] = {}
        self.names: dict[str, str] = {}

    async def submit(self, name: str, *options: str, watch: bool = True) -> str:
        head = "".join(
            f"#SBATCH {option}\n" for option in (f"--job-name=jgk-{name}", "--no-requeue", *options)
        )
        script = f"#!/bin/bash -l\n{head}#SBATCH --output=/dev/null\nexec sleep 300\n"
        job_id = await self.scheduler.submit(script.encode(), None)
        self.names[job_id] = f"jgk-{name}"
        if watch:
            self.scheduler.watch(job_id, f"jgk-{name}", self.reported.setdefault(job_id, []).append)
        return job_id

    async def until(self, job_id: str, condition: Callable[[JobState], bool]) -> JobState:
        """Return the first state that the scheduler tells of which this is true."""
        deadline = asyncio.get_running_loop().time() + DEADLINE
        while not (found := [state for state in self.reported[job_id] if condition(state)]):
            assert asyncio.get_running_loop().time() < deadline, self.reported[job_id]
            self.clock.seconds += 61  # it is time to look
            self.scheduler.watch("1000000", "", lambda state: None)()
            await asyncio.sleep(0.1)
        return found[0]

    async def end(self, job_id: str) -> JobEnd:
        await self.until(job_id, lambda state: state.over)
        found = await self.scheduler.ended(job_id, self.names[job_id])
        assert found is not None
        return found


@pytest.fixture
def with_jobs(slurm: Slurm, tmp_path: Path) -> Callable[[Callable[[Jobs], Coroutine[Any, Any, None]]], None]:
    """Run a coroutine function with `Jobs`."""

    async def run(test: Callable[[Jobs], Coroutine[Any, Any, None]]) -> None:
        clock = Clock()
        route = RouteSettings.from_settings(KernelSettings.from_json(slurm.settings))
        node = Node(clock, route, Connections(tmp_path / "trusted").connect, logging.getLogger())
        scheduler = Scheduler(clock, lambda: node, logging.getLogger())
        try:
            await test(Jobs(scheduler, clock))
        finally:
            scheduler.close()
            await node.close()

    return lambda test: asyncio.run(run(test))


def test_a_job_waits_runs_and_is_cancelled(slurm: Slurm, with_jobs: Callable[..., None]) -> None:
    async def test(jobs: Jobs) -> None:
        first = await jobs.submit("first", "--nodes=2", "--gres=gpu:2", "--time=5")
        running = await jobs.until(first, lambda state: state.state == "RUNNING")
        assert (running.node, running.nodes) == (slurm.nodes[0], slurm.nodes)
        assert running.end_time is not None and running.name == "jgk-first"
        second = await jobs.submit("second", "--gres=gpu:4", "--time=5")
        waiting = await jobs.until(second, lambda state: state.reason not in ("", "Priority"))
        assert (waiting.state, waiting.reason, waiting.place) == ("PENDING", "Resources", 1)
        estimated = await jobs.until(second, lambda state: state.start_estimate is not None)
        assert estimated.start_estimate is not None
        assert abs(estimated.start_estimate - running.end_time) < 120  # the backfill scheduler's word
        assert {one.id for one in await jobs.scheduler.jobs() if not one.over} == {first, second}
        assert await jobs.scheduler.ended(second, "jgk-second") is None
        await jobs.scheduler.cancel(first)
        end = await jobs.end(first)
        assert end.state == "CANCELLED" and "only where it has accounting" in end.cause
        runs = await jobs.until(second, lambda state: state.state == "RUNNING")
        assert runs.nodes == (slurm.nodes[1],)
        await jobs.scheduler.cancel(second, kill=True)
        await jobs.end(second)
        third = await jobs.submit("third", "--hold")
        await jobs.scheduler.cancel_named("jgk-third")
        assert (await jobs.end(third)).state == "CANCELLED"
        await jobs.scheduler.cancel_named("jgk-third")  # is no error
        await jobs.scheduler.cancel(second)  # is no error

    with_jobs(test)


def test_the_names_of_another_users_jobs_change_nothing(slurm: Slurm, with_jobs: Callable[..., None]) -> None:
    """squeue prints newlines in names as they are: a name can look like a row about our job."""

    async def test(jobs: Jobs) -> None:
        ours = await jobs.submit("ours", "--time=5")
        before = await jobs.until(ours, lambda state: state.state == "RUNNING")
        user = slurm.run("id", "-u").strip()
        name = f"x\n{ours}|COMPLETED|None|1|2|gpu|9|evil|evil|{user}|jgk-ours"
        theirs = slurm.run(
            "sbatch",
            "--parsable",
            "--hold",
            "--partition=preempt",
            "--chdir=/",
            f"--job-name={name}",
            bob=True,
            stdin="#!/bin/sh\n",
        )
        try:
            asked = len(jobs.reported[ours])
            waiting = await jobs.submit("waiting", "--hold")
            await jobs.until(waiting, lambda state: state.state == "PENDING")
            assert [one for one in await jobs.scheduler.jobs() if one.id == ours] == [before]
            assert jobs.reported[ours][asked:] == []
        finally:
            slurm.run("scancel", theirs.strip(), bob=True)
        await jobs.scheduler.cancel_named("jgk-waiting")
        await jobs.scheduler.cancel(ours, kill=True)

    with_jobs(test)


def test_sbatch_refuses_a_job(with_jobs: Callable[..., None]) -> None:
    async def test(jobs: Jobs) -> None:
        for option, flag in (
            ("--partition=nowhere", "--partition"),
            ("--gres=gpu:h100:1", "--gpus"),
            ("--mem=900G", "--mem"),
            ("--no-such-option", "--sbatch"),
        ):
            with pytest.raises(SettingsError) as caught:
                await jobs.submit("refused", option, watch=False)
            assert "sbatch refused the job: " in str(caught.value)
            assert flag in caught.value.remedy, (option, caught.value)

    with_jobs(test)


def test_slurm_accepts_a_job_that_can_never_run(with_jobs: Callable[..., None]) -> None:
    async def test(jobs: Jobs) -> None:
        too_long = await jobs.submit("too-long", "--time=2-00:00:00")
        state = await jobs.until(too_long, lambda state: state.reason == "PartitionTimeLimit")
        assert state.state == "PENDING"
        await jobs.scheduler.cancel(too_long)

    with_jobs(test)
