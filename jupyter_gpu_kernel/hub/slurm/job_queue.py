"""What squeue shows of the user's jobs. It is run for all watchers at once, and at most once in 10 s.

The longer no job changes, the more rarely squeue is run. If the controller or the login node does not answer, watchers
learn that, and the watch goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from ...errors import ConnectError, GpuKernelError
from ...wire.runtime import Runtime
from .dialect import GONE, JobState

INTERVAL = 10.0
"""The least seconds between two runs of squeue."""
LONGEST_INTERVAL = 60.0
"""The most seconds between two runs, while a job is watched."""
FIRST_LOOK = 3.5
"""Seconds from a new watch to the first look, if the last one is long enough ago: jobs submitted at once share it, and
Slurm may have started them. By default Slurm takes up to 3 s to start a job while others are submitted (its
`batch_sched_delay`)."""
PATIENCE = 5.0
"""Seconds after which watchers learn that Slurm has not answered yet: a connection is given up much later."""
Changed = Callable[[JobState], None]
Ask = Callable[[bool], Awaitable[dict[str, JobState]]]
HasEnded = Callable[[str, str], Awaitable[bool]]


class JobQueue:
    """The user's jobs: `await jobs()` returns them, and `watch(…)` reports the changes of one of them."""

    def __init__(self, runtime: Runtime, ask: Ask, has_ended: HasEnded, log: logging.Logger) -> None:
        """`ask(everyone)` returns the user's jobs by id, with their places if other users' jobs are counted;
        `has_ended(job_id, name)` asks about one job in another way. Both raise GpuKernelError."""
        self._runtime = runtime
        self._ask = ask
        self._has_ended = has_ended
        self._log = log
        self._watched: list[_Watched] = []
        self._poller: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._asked = -LONGEST_INTERVAL
        self._jobs: dict[str, JobState] = {}
        self._changed: dict[str, JobState | None] = {}  # since Slurm was asked; None: cancelled
        self._problem: GpuKernelError | None = None
        self._failed_since = 0.0

    async def jobs(self) -> list[JobState]:
        """Return the user's jobs, as they were within the last 10 s. Raises GpuKernelError if they are not known.

        If a caller is cancelled, squeue's answer serves the next caller.
        """
        if self._is_looking or self._runtime.monotonic() - self._asked >= INTERVAL:
            await self._look()
        if self._problem is not None:
            raise self._problem
        return list(self._jobs.values())

    def add(self, job: JobState) -> None:
        """Add a job that was submitted just now."""
        self._changed[job.id] = job
        self._jobs.setdefault(job.id, job)

    def remove(self, job_id: str) -> None:
        """Remove a job that was cancelled just now: the job is not listed until squeue is run again."""
        self._jobs.pop(job_id, None)
        self._changed[job_id] = None

    def watch(self, job_id: str, name: str, changed: Changed) -> Callable[[], None]:
        """Call `changed(state)` on the event loop when the job's state changes; return a function that ends
        the watch. `name`: the job's name.

        After a state with `over`, `changed` is not called any more.
        """
        watched = _Watched(job_id, name, changed, self._runtime.monotonic())
        self._watched.append(watched)
        self._woken.set()
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._poll())

        def end() -> None:
            if watched in self._watched:
                self._watched.remove(watched)
                self._woken.set()

        return end

    def close(self) -> None:
        """End all watches."""
        self._watched.clear()
        for task in (self._poller, self._looking):
            if task is not None:
                task.cancel()

    async def _poll(self) -> None:
        while self._watched:
            wait = self._next_time() - self._runtime.monotonic()
            if wait > 0:
                self._woken.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), wait)
                continue
            await self._look()

    def _next_time(self) -> float:
        """Return when to run squeue the next time."""
        new = [one for one in self._watched if one.state is None]
        if self._problem is not None:
            unchanged = self._asked - self._failed_since
        elif new:
            return max(self._asked + INTERVAL, min(one.since for one in new) + FIRST_LOOK)
        else:
            unchanged = min((self._asked - one.since for one in self._watched), default=0.0)
        return self._asked + max(INTERVAL, min(LONGEST_INTERVAL, unchanged / 10))

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and not self._looking.done()

    async def _look(self) -> None:
        """Run squeue, or wait for its answer if it runs."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._run_squeue())
        await asyncio.shield(self._looking)

    async def _run_squeue(self) -> None:
        """Run squeue once, and report to the watchers."""
        everyone = any(one.state is None or one.state.state == "PENDING" for one in self._watched)
        watched = list(self._watched)  # a job that is submitted meanwhile may be missing in the answer
        self._changed.clear()
        late = asyncio.get_running_loop().call_later(PATIENCE, self._report_late)
        try:
            jobs = await self._ask(everyone)
            await self._confirm_ends(watched, jobs)
        except GpuKernelError as error:
            if self._problem is None:
                self._failed_since = self._runtime.monotonic()
                self._log.warning("%s: the jobs are not known at present: %s", error.hop, error.cause)
            self._problem = error
            self._report_problem(error)
        else:
            self._problem = None
            listed = {**self._changed, **jobs}
            self._jobs = {key: job for key, job in listed.items() if job and self._changed.get(key, job)}
            self._report(watched, jobs)
        finally:
            late.cancel()
            self._asked = self._runtime.monotonic()

    async def _confirm_ends(self, watched: list[_Watched], jobs: dict[str, JobState]) -> None:
        """Correct `jobs` where Slurm contradicts that a job has ended: watchers end kernels of jobs that have."""
        for one in watched:
            state = jobs.get(one.job_id)
            if (state is None or state.over) and not await self._has_ended(one.job_id, one.name):
                jobs[one.job_id] = one.state or JobState(one.job_id, "PENDING")

    def _report(self, watched: list[_Watched], jobs: dict[str, JobState]) -> None:
        for one in watched:
            state = jobs.get(one.job_id, JobState(one.job_id, GONE))
            if one in self._watched:
                if state.over:
                    self._watched.remove(one)
                self._notify(one, state)

    def _report_late(self) -> None:
        self._report_problem(self._problem or ConnectError(f"there has been no answer for {PATIENCE:.0f} s"))

    def _report_problem(self, error: GpuKernelError) -> None:
        for one in list(self._watched):
            state = one.state or JobState(one.job_id, "PENDING")
            self._notify(one, state._replace(problem=str(error)))

    def _notify(self, one: _Watched, state: JobState) -> None:
        if state == one.state:
            return
        if one.state is None or (state.state, state.reason) != (one.state.state, one.state.reason):
            one.since = self._runtime.monotonic()
        one.state = state
        try:
            one.changed(state)
        except Exception:  # the other watchers must get the report
            self._log.exception("the state of job %s was not taken", one.job_id)


class _Watched:
    """A job that is watched. `since`: when its state changed, or the watch began."""

    def __init__(self, job_id: str, name: str, changed: Changed, since: float) -> None:
        self.job_id = job_id
        self.name = name
        self.changed = changed
        self.since = since
        self.state: JobState | None = None
