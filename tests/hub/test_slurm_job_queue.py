"""When Slurm is asked about jobs, and what watchers learn: an event loop whose clock the test moves."""

from __future__ import annotations

import asyncio
import itertools
import logging
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.slurm.dialect import JobState
from jupyter_gpu_kernel.hub.slurm.job_queue import FIRST_LOOK, Ask, JobQueue
from jupyter_gpu_kernel.wire.runtime import Runtime

RUNNING = JobState("1", "RUNNING", node="gpu1")


class SimulatedTime(asyncio.SelectorEventLoop):
    """An event loop that does not wait: while nothing is ready, its clock moves to the next timer."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: SimulatedTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            self._loop.now += timeout
        return super().select(0)


class Slurm(Runtime):
    """The clock, and what squeue would show: `jobs`, or `error`. `asked`: when, and whether for everyone's jobs;
    `contradicted`: jobs that have not ended, whatever squeue shows."""

    def __init__(self, loop: SimulatedTime) -> None:
        super().__init__()
        self._loop = loop
        self.jobs: dict[str, JobState] = {}
        self.error: ConnectError | None = None
        self.asked: list[tuple[float, bool]] = []
        self.contradicted: set[str] = set()
        self.queue = self.asked_by(self.ask)
        self.reported: list[tuple[float, JobState]] = []

    def asked_by(self, ask: Ask) -> JobQueue:
        async def has_ended(job_id: str, name: str) -> bool:
            return job_id not in self.contradicted

        return JobQueue(self, ask, has_ended, logging.getLogger("test"))

    def monotonic(self) -> float:
        return self._loop.now

    async def ask(self, everyone: bool) -> dict[str, JobState]:
        self.asked.append((self._loop.now - 1000, everyone))
        if self.error is not None:
            raise self.error
        return dict(self.jobs)

    def watch(self, job_id: str) -> Callable[[], None]:
        return self.queue.watch(
            job_id, f"jgk-{job_id}", lambda state: self.reported.append((self._loop.now - 1000, state))
        )


@pytest.fixture
def simulated():
    """Run a coroutine function of one `Slurm` in simulated time."""

    def run(main: Callable[[Slurm], Coroutine[Any, Any, None]]) -> Slurm:
        loop = SimulatedTime()
        try:
            slurm = Slurm(loop)
            loop.run_until_complete(main(slurm))
            slurm.queue.close()
            loop.run_until_complete(asyncio.sleep(1))  # its tasks end meanwhile
            return slurm
        finally:
            loop.close()

    return run


def intervals(slurm: Slurm) -> list[float]:
    times = [time for time, _ in slurm.asked]
    return [round(second - first, 3) for first, second in itertools.pairwise(times)]


def test_many_jobs_are_asked_about_at_once(simulated):
    async def main(slurm: Slurm) -> None:
        for number in range(1, 21):
            slurm.jobs[str(number)] = JobState(str(number), "PENDING", "Priority", number)
            slurm.watch(str(number))
        await asyncio.sleep(61.5)

    slurm = simulated(main)
    assert [time for time, _ in slurm.asked] == [FIRST_LOOK + 10 * number for number in range(6)]
    assert [state.place for _, state in slurm.reported] == list(range(1, 21))  # nothing has changed since


def test_a_job_that_comes_later_waits_for_its_turn(simulated):
    async def main(slurm: Slurm) -> None:
        slurm.jobs = {"1": RUNNING, "2": JobState("2", "PENDING")}
        slurm.watch("1")
        await asyncio.sleep(5)
        slurm.watch("2")
        await asyncio.sleep(20)

    assert [time for time, _ in simulated(main).asked] == [FIRST_LOOK + late for late in (0, 10, 20)]


def test_a_job_that_does_not_change_is_asked_about_less_and_less(simulated):
    async def main(slurm: Slurm) -> None:
        slurm.jobs = {"1": RUNNING}
        slurm.watch("1")
        await asyncio.sleep(3600)

    slurm = simulated(main)
    between = intervals(slurm)
    assert between[0] == 10 and between[-1] == 60 and between == sorted(between) and len(between) < 100
    assert slurm.asked[0][1] and not slurm.asked[-1][1]  # other users' jobs only while one is pending


def test_a_change_is_reported_and_makes_it_quick_again(simulated):
    async def main(slurm: Slurm) -> None:
        slurm.jobs = {"1": JobState("1", "PENDING", "Resources")}
        slurm.watch("1")
        await asyncio.sleep(1800)
        slurm.jobs = {"1": RUNNING}
        await asyncio.sleep(120)
        slurm.jobs = {"1": RUNNING._replace(state="TIMEOUT")}
        await asyncio.sleep(120)

    slurm = simulated(main)
    assert [state.state for _, state in slurm.reported] == ["PENDING", "RUNNING", "TIMEOUT"]
    assert (
        min(intervals(slurm)) == 10 and slurm.asked[-1][0] == slurm.reported[-1][0]
    )  # nobody watches any more


def test_a_job_that_is_not_listed_is_gone(simulated):
    async def main(slurm: Slurm) -> None:
        slurm.watch("7")
        await asyncio.sleep(30)

    slurm = simulated(main)
    assert [state.state for _, state in slurm.reported] == ["GONE"] and len(slurm.asked) == 1


def test_a_job_submitted_while_slurm_answers_is_not_gone(simulated):
    async def main(slurm: Slurm) -> None:
        slurm.jobs = {"1": RUNNING}
        before = dict(slurm.jobs)

        async def ask(everyone: bool) -> dict[str, JobState]:
            slurm.jobs["2"] = JobState("2", "PENDING")
            slurm.watch("2")
            return before

        queue = slurm.asked_by(ask)
        queue.watch("1", "jgk-1", lambda state: None)
        await asyncio.sleep(FIRST_LOOK + 0.5)
        queue.close()
        await asyncio.sleep(60)

    assert [state.state for _, state in simulated(main).reported] == ["PENDING"]


def test_a_job_submitted_while_slurm_answers_is_listed(simulated):
    async def main(slurm: Slurm) -> None:
        async def ask(everyone: bool) -> dict[str, JobState]:
            slurm.queue.add(JobState("2", "PENDING"))
            return {"1": RUNNING}

        slurm.queue = slurm.asked_by(ask)
        assert [job.id for job in await slurm.queue.jobs()] == ["2", "1"]

    simulated(main)


def test_a_job_submitted_while_slurm_answers_is_as_slurm_lists_it(simulated):
    async def main(slurm: Slurm) -> None:
        async def ask(everyone: bool) -> dict[str, JobState]:
            slurm.queue.add(JobState("1", "PENDING"))
            return {"1": RUNNING}

        slurm.queue = slurm.asked_by(ask)
        assert await slurm.queue.jobs() == [RUNNING]

    simulated(main)


def test_a_watch_that_begins_while_slurm_answers_does_not_get_that_answer(simulated):
    """The answer may be older than the job."""

    async def main(slurm: Slurm) -> None:
        async def ask(everyone: bool) -> dict[str, JobState]:
            if not slurm.asked:
                slurm.watch("2")
            return await slurm.ask(everyone)

        slurm.queue = slurm.asked_by(ask)
        slurm.jobs = {"1": RUNNING}
        slurm.watch("1")
        await asyncio.sleep(5)
        assert [state.id for _, state in slurm.reported] == ["1"]

    simulated(main)


@pytest.mark.parametrize("state", [None, JobState("1", "COMPLETED", node="gpu9")])
def test_an_end_that_slurm_contradicts_is_not_reported(simulated, state: JobState | None) -> None:
    async def main(slurm: Slurm) -> None:
        slurm.contradicted = {"1"}
        slurm.jobs = {"1": RUNNING}
        slurm.watch("1")
        await asyncio.sleep(5)
        slurm.jobs = {} if state is None else {"1": state}
        await asyncio.sleep(60)
        assert await slurm.queue.jobs() == [RUNNING]
        slurm.contradicted = set()
        await asyncio.sleep(60)

    reported = [state.state for _, state in simulated(main).reported]
    assert reported == ["RUNNING", "COMPLETED" if state else "GONE"]


def test_while_slurm_is_away_the_watch_goes_on(simulated):
    async def main(slurm: Slurm) -> None:
        slurm.jobs = {"1": RUNNING}
        slurm.watch("1")
        await asyncio.sleep(5)
        slurm.error = ConnectError("Slurm's controller does not answer", hop="login")
        await asyncio.sleep(60)
        with pytest.raises(ConnectError):
            await slurm.queue.jobs()  # not an empty list
        slurm.error = None
        await asyncio.sleep(60)
        assert await slurm.queue.jobs() == [RUNNING]

    slurm = simulated(main)
    assert [(state.state, bool(state.problem)) for _, state in slurm.reported] == [
        ("RUNNING", False),
        ("RUNNING", True),
        ("RUNNING", False),
    ]
    assert min(intervals(slurm)) >= 10 and slurm.reported[2][0] < 80


def test_a_watch_that_ended_hears_nothing(simulated):
    async def main(slurm: Slurm) -> None:
        slurm.jobs = {"1": RUNNING}
        end = slurm.watch("1")
        await asyncio.sleep(5)
        end()
        slurm.jobs = {}
        await asyncio.sleep(100)

    slurm = simulated(main)
    assert len(slurm.reported) == 1 and len(slurm.asked) == 1


def test_a_job_that_was_cancelled_just_now_is_not_listed(simulated):
    async def main(slurm: Slurm) -> None:
        slurm.jobs = {"1": RUNNING, "2": JobState("2", "PENDING")}
        assert len(await slurm.queue.jobs()) == 2
        slurm.queue.remove("2")
        assert await slurm.queue.jobs() == [RUNNING]

    simulated(main)


def test_a_job_that_was_cancelled_while_slurm_answers_is_not_listed(simulated):
    async def main(slurm: Slurm) -> None:
        async def ask(everyone: bool) -> dict[str, JobState]:
            answer = await slurm.ask(everyone)
            await asyncio.sleep(2)
            return answer

        slurm.queue = slurm.asked_by(ask)
        slurm.jobs = {"1": RUNNING, "2": JobState("2", "PENDING")}
        asyncio.get_running_loop().call_later(1, slurm.queue.remove, "2")
        assert await slurm.queue.jobs() == [RUNNING]
        await asyncio.sleep(11)
        assert len(await slurm.queue.jobs()) == 2  # Slurm has not cancelled it after all

    simulated(main)


def test_a_caller_that_waits_no_longer_leaves_the_question_to_the_next_one(simulated):
    """As when `ps` is interrupted: the jobs are not unknown to the next one, and Slurm is not asked twice."""

    async def main(slurm: Slurm) -> None:
        async def ask(everyone: bool) -> dict[str, JobState]:
            answer = await slurm.ask(everyone)
            await asyncio.sleep(5)
            return answer

        slurm.queue = slurm.asked_by(ask)
        slurm.jobs = {"1": RUNNING}
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slurm.queue.jobs(), 1)
        assert await slurm.queue.jobs() == [RUNNING]

    assert [time for time, _ in simulated(main).asked] == [0]


def test_callers_share_what_is_known(simulated):
    async def main(slurm: Slurm) -> None:
        slurm.jobs = {"1": RUNNING}
        for jobs in await asyncio.gather(*(slurm.queue.jobs() for _ in range(5))):
            assert jobs == [RUNNING]
        slurm.queue.add(JobState("2", "PENDING"))
        assert len(await slurm.queue.jobs()) == 2  # it was submitted just now
        await asyncio.sleep(11)
        await slurm.queue.jobs()

    assert [time for time, _ in simulated(main).asked] == [0, 11]


def test_watchers_learn_soon_that_there_is_no_answer_and_then_why(simulated):
    """A connection that is cut is given up only after a while."""

    async def main(slurm: Slurm) -> None:
        async def ask(everyone: bool) -> dict[str, JobState]:
            answer = await slurm.ask(everyone)
            if 1 < len(slurm.asked) < 4:
                await asyncio.sleep(27)
                raise ConnectError("connection timed out", hop="login")
            return answer

        slurm.queue = slurm.asked_by(ask)
        slurm.jobs = {"1": JobState("1", "PENDING", "Priority")}
        slurm.watch("1")
        await asyncio.sleep(200)

    reported = [(time - FIRST_LOOK, state.problem) for time, state in simulated(main).reported]
    assert reported[:3] == [
        (0, ""),
        (15, "there has been no answer for 5 s"),
        (37, "login: connection timed out"),
    ]
    assert len(reported) == 4 and reported[3][1] == ""  # while the same problem lasts, nothing else is told
