"""The jobs of this hub's kernels: which kernels each job has, what becomes of the job without them, and how it ended.

A job that waits is kept for a while when its notebook is closed, as the notebook may return. A job that runs ends by
itself with its last kernel; if it does not, it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from ...errors import AgentError, GpuKernelError
from ...wire.runtime import Runtime
from ..background import BackgroundTasks
from ..kernel.remote_kernel import RemoteKernel
from ..kernel_settings import KernelSettings
from ..slurm.commands import JOB_NAME
from ..slurm.dialect import GONE, JobRecord, JobState
from ..slurm.scheduler import Scheduler, Schedulers
from ..slurm.words import JobEnd, job_end
from .job import Job
from .job_files import JobFiles
from .job_nodes import JobNodes, read_output

_END_WITHIN = 30.0
"""Seconds in which a job ends by itself after its last kernel."""
_ASK_AFTER, _LONGEST_PAUSE = 1.0, 10.0
"""Seconds until Slurm is asked again for the end of a job: at first, and at most. They double in between."""
_LISTED_FOR = 60.0
"""Seconds for which a job that has ended may still be listed."""
_RETRY = 30.0
_ATTEMPTS = 20


class JobTable:
    """All jobs that this hub knows."""

    def __init__(
        self, runtime: Runtime, schedulers: Schedulers, files: JobFiles, nodes: JobNodes, log: logging.Logger
    ) -> None:
        self._runtime = runtime
        self.files = files
        self._nodes = nodes
        self._schedulers = schedulers
        self._log = log
        self._jobs: list[Job] = []
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._tasks = BackgroundTasks()

    @property
    def in_use(self) -> bool:
        """Whether a job is kept for a notebook, or is being ended."""
        return bool(self._tasks) or any(job.kept is not None for job in self._jobs)

    def is_over(self, job_id: str, login: str) -> bool:
        """Whether a job is known to have ended, although Slurm has listed it a moment ago."""
        since = self._runtime.time() - _LISTED_FOR  # before: Slurm may have given the id again
        files = [one for one in self.files.of_job(job_id, login) if not one.over or one.changed > since]
        return bool(files) and all(file.over for file in files)

    def listed(self, state: JobState, settings: KernelSettings, login: str) -> Job:
        """Return a job that Slurm lists: that of this table, or else a new `Job`, which is not added to the table."""
        job = self._known(state.id, login)
        if job is None or job.slurm_name != state.name:
            return Job(state, settings, login, self._schedulers.of(settings.at_login()))
        return job

    def get(self, state: JobState, settings: KernelSettings, login: str) -> Job:
        """Return a job that Slurm has, with this state. From now on the job is in this table."""
        job = self.listed(state, settings, login)
        if job not in self._jobs:
            self._jobs.insert(0, job)
        job.state = state
        return job

    def _known(self, job_id: str, login: str) -> Job | None:
        return next((job for job in self._jobs if (job.id, job.login) == (job_id, login)), None)

    # -------------------------------------------------------------------------------------- found and submitted

    async def find(self, remote: RemoteKernel, login: str, replaced: str = "") -> Job | None:
        """Return the job in which this kernel waits or runs, or the kernel `replaced` by this one, or the one that the
        notebook had before; None if there is none. Raises GpuKernelError if Slurm cannot be asked."""
        settings = remote.settings.at_login()
        active = {job.id: job for job in await self._schedulers.of(settings).jobs()}
        by_kernel = {job.kernel_id: job.id for job in active.values()}
        last = self.files.find(settings.name, settings.notebook)
        for kernel_id in filter(None, (remote.kernel_id, replaced, last and last.kernel)):
            file = self.files.get(kernel_id)
            job_id = (file.job if file.login in ("", login) else "") or by_kernel.get(kernel_id, "")
            if kernel_id == replaced and file.over:
                continue
            if kernel_id != remote.kernel_id and self._is_taken(job_id, login, kernel_id, replaced):
                continue
            if job_id in active:
                return self.get(active[job_id], settings, login)
            if job_id and not file.over:
                self.files.save(file._replace(over=True))
        return None

    def former(self, remote: RemoteKernel, login: str) -> Job:
        """Return the job in which this kernel ran, and which Slurm does not list any more. Raises AgentError if it is
        not known which job that was."""
        job_id = self.files.get(remote.kernel_id).job
        if not job_id:
            raise AgentError("Slurm lists no job of this kernel any more", hop=login)
        return self.listed(
            JobState(job_id, GONE, name=f"{JOB_NAME}{remote.kernel_id}"), remote.settings, login
        )

    def _is_taken(self, job_id: str, login: str, kernel_id: str, replaced: str) -> bool:
        """Whether the job of this kernel is about to end; or the kernel is still used by a front end here, and not
        `replaced`."""
        job = self._known(job_id, login)
        if job is None or job.ending:
            return job is not None
        return kernel_id != replaced and kernel_id in [one.kernel_id for one in job.kernels]

    def may_have(self, remote: RemoteKernel, *, adopted: bool) -> bool:
        """Whether the kernel may have a job, so that `find` is worth a question to Slurm."""
        name, notebook = remote.settings.name, remote.settings.notebook
        return adopted or self.files.find(name, notebook) is not None

    def submitting(self, settings: KernelSettings, login: str) -> contextlib.AbstractAsyncContextManager[Any]:
        """Return a context in which a job of this kernelspec is submitted: one at a time if kernels share the job."""
        if not settings.share_job:
            return contextlib.nullcontext()
        return self._locks.setdefault((login, settings.name), asyncio.Lock())

    async def shared(self, settings: KernelSettings, login: str) -> Job | None:
        """Return the job that a new kernel of this kernelspec joins, if there is one. Raises GpuKernelError if Slurm
        cannot be asked."""
        if not settings.share_job:
            return None
        name = settings.name
        same = (job for job in self._jobs if (job.login, job.name) == (login, name) and not job.state.over)
        found = next((job for job in same if job.settings.share_job and not job.ending), None)
        if found is not None:
            return found
        active = {job.id: job for job in await self._schedulers.of(settings.at_login()).jobs()}
        for file in self.files.newest_first():
            is_active = (file.name, file.login) == (name, login) and file.job in active and not file.over
            if is_active and not (found := self.get(active[file.job], settings, login)).ending:
                found.has_detached = True
                return found
        return None

    def submitted(self, job_id: str, remote: RemoteKernel, login: str) -> Job:
        """Return the job that was submitted for this kernel just now."""
        for file in self.files.of_job(job_id, login):
            if file.kernel != remote.kernel_id:  # Slurm has lost its records, and counts anew
                self.files.save(file._replace(job="", over=True))
        name = f"{JOB_NAME}{remote.kernel_id}"
        return self.get(JobState(job_id, "PENDING", name=name), remote.settings, login)

    # -------------------------------------------------------------------------------------- its kernels

    def enter(self, job: Job, remote: RemoteKernel) -> None:
        """Record that the kernel waits for the job, or runs in the job."""
        if job.kept is not None:
            job.kept.cancel()
            job.kept = None
        if remote not in job.kernels:
            job.kernels.append(remote)
        self.add_event(job, remote, "job", f"job {job.id} of {job.login}: {job.state.state}")
        self._watch(job)

    def add_event(self, job: Job, remote: RemoteKernel, event: str, text: str) -> None:
        """Write what happened to a kernel into its file."""
        settings = remote.settings
        file = self.files.get(remote.kernel_id)
        file = file._replace(
            job=job.id,
            over=file.over and file.job == job.id,
            login=job.login,
            name=settings.name,
            notebook=settings.notebook,
        )
        self.files.save(file.with_event(self._runtime.time(), event, text, job=job.id))

    def leave(self, job: Job, remote: RemoteKernel, *, started: bool) -> None:
        """Record that the hub does not have the kernel any more, and decide what becomes of the job.

        `started`: whether the kernel was started in the job.
        """
        if remote in job.kernels:
            job.kernels.remove(remote)
        runs_on = started and not remote.ended and bool(remote.life.taken_cause or not remote.end_wanted)
        job.has_detached = job.has_detached or runs_on
        if job.kernels:
            return
        seconds = job.settings.keep_job
        if job.state.over or runs_on or (job.has_detached and not started):
            self._forget(job)
        elif started:
            self._begin_end(job, self._end_by_itself(job))
        elif remote.end_wanted or not seconds:
            self._begin_end(job, self._cancel(job, "its notebook was closed"))
        else:
            job.kept = asyncio.get_running_loop().call_later(seconds, self._give_up, job)

    def dismiss(self, job: Job, remote: RemoteKernel, why: str) -> None:
        """Record that the kernel does not need the job, and cancel the job unless another kernel needs it."""
        if remote in job.kernels:
            job.kernels.remove(remote)
        if job.kernels or job.has_detached:
            self.add_event(job, remote, "job", f"the kernel was not started in job {job.id}: {why}")
            return self._forget(job)
        self.add_event(job, remote, "cancel", f"job {job.id} is cancelled: {why}")
        self._begin_end(job, self._cancel(job, why))

    def withdraw(self, name: str, scheduler: Scheduler, login: str) -> None:
        """Cancel a job that may have been submitted under this name, although Slurm's answer did not arrive."""

        async def withdraw() -> None:
            await self._repeat(f"{login}: a job {name}", partial(scheduler.cancel_named, name))

        self._tasks.spawn(withdraw())

    # -------------------------------------------------------------------------------------- its state

    def look(self, job: Job) -> None:
        """Ask Slurm for the job's state soon, as the job may have ended."""
        if job.end_watch is not None and not job.state.over:
            job.end_watch()
            job.end_watch = None
            self._watch(job)

    def _watch(self, job: Job) -> None:
        def changed(state: JobState) -> None:
            before, job.state = job.state, state
            if before.state != state.state:
                self._log.info("%s: job %s is %s", job.login, job.id, state.state)
                for remote in job.kernels:
                    self.add_event(job, remote, "job", f"job {job.id} is {state.state} {state.node}".rstrip())
            for remote in list(job.kernels):
                remote.wake()
            if state.over and job.kept is not None:
                job.kept.cancel()
                job.kept = None
                self._forget(job)

        if job.end_watch is None:
            job.end_watch = job.scheduler.watch(job.id, job.slurm_name, changed)

    async def end(self, job: Job, within: float) -> JobEnd | None:
        """Return how the job ended; None if the job has not ended within so many seconds, as far as is known. While
        Slurm does not answer, the last known state counts."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + within, _ASK_AFTER
        while True:
            is_last = loop.time() >= deadline
            try:
                end = await job.scheduler.ended(job.id, job.slurm_name)
            except GpuKernelError:
                end = _last_known_end(job) if is_last else None
            if end is not None:
                self._record_end(job, end)
            if end is not None or is_last:
                return end
            await asyncio.sleep(min(pause, max(0.0, deadline - loop.time())))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _record_end(self, job: Job, end: JobEnd) -> None:
        host = end.node or job.state.node
        job.state = job.state._replace(state=end.state)
        unaware = [one for one in self.files.of_job(job.id, job.login) if not one.over]
        for file in unaware:
            over = file._replace(over=True)
            self.files.save(over.with_event(self._runtime.time(), "end", end.cause, remedy=end.remedy))
        if unaware:
            self._tasks.spawn(self._record_output(job, host))

    async def _record_output(self, job: Job, host: str) -> None:
        """Add what the job has printed to the files of its kernels."""
        output = await read_output(self._nodes, job.settings, job.id, host)
        self._record(job, "output", *output.splitlines())

    def _record(self, job: Job, event: str, *texts: str) -> None:
        """Add what happened to the files of all kernels of the job. Each file is written once."""
        for file in self.files.of_job(job.id, job.login) if texts else ():
            for text in texts:
                file = file.with_event(self._runtime.time(), event, text, job=job.id)
            self.files.save(file)

    # -------------------------------------------------------------------------------------- its end

    def _begin_end(self, job: Job, end: Coroutine[Any, Any, None]) -> None:
        job.ending = True
        self._tasks.spawn(end)

    def _give_up(self, job: Job) -> None:
        job.kept = None
        self._begin_end(job, self._cancel(job, "its notebook did not come back"))

    async def _cancel(self, job: Job, why: str) -> None:
        """Cancel a job that nobody needs."""
        self._log.info("%s: job %s is cancelled: %s", job.login, job.id, why)
        if await self._repeat(f"{job.login}: job {job.id}", partial(job.scheduler.cancel, job.id)):
            for file in self.files.of_job(job.id, job.login):
                self.files.save(file._replace(over=True))
        else:  # `ps` goes on showing it
            self._record(
                job, "job", f"job {job.id} could not be cancelled: run “scancel {job.id}” on {job.login}"
            )
        self._forget(job)
        await self._nodes.leave(job.id, job.login)

    async def _repeat(self, what: str, cancel: Callable[[], Awaitable[None]]) -> bool:
        """Return whether the job was cancelled; go on for some minutes while the login node cannot be reached."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_RETRY)
            try:
                await cancel()
                return True
            except GpuKernelError as error:
                self._log.warning("%s cannot be cancelled: %s", what, error.cause)
        return False

    async def _end_by_itself(self, job: Job) -> None:
        """Wait until the job ends by itself, as its last kernel has ended; else cancel the job."""
        await self._nodes.leave(job.id, job.login)  # a step that is open keeps the job until Slurm kills it
        ended = await self.end(job, _END_WITHIN) is not None
        if not (ended or job.kernels or await self._may_have_kernels(job)):
            return await self._cancel(job, "its last kernel has ended")
        self._forget(job)

    async def _may_have_kernels(self, job: Job) -> bool:
        """Whether kernels may run in the job that no front end of this hub has."""
        if job.node is not None:
            try:
                answer = await job.node.request(None, None, "job", job=job.id)
                return bool(answer["job"]["kernels"])
            except GpuKernelError as error:
                if getattr(error, "code", "") == "job":  # its process has ended
                    return False
        return job.has_detached or job.settings.share_job

    def _forget(self, job: Job) -> None:
        """Remove a job in which no kernel of this hub is, unless a kernel has come meanwhile."""
        job.ending = False
        if job.kernels:
            return
        if job.end_watch is not None:
            job.end_watch()
            job.end_watch = None
        if job in self._jobs:
            self._jobs.remove(job)
            if job.state.over:
                self._tasks.spawn(self._nodes.leave(job.id, job.login))


def _last_known_end(job: Job) -> JobEnd | None:
    """Return how a job ended by its last known state."""
    if not job.state.over:
        return None
    return job_end(job.id, JobRecord(job.state.state) if job.state.state != GONE else None)
