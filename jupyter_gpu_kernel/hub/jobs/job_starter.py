"""Starts one kernel in a job: submits the job when a cell of the user waits, and starts the kernel when the job runs.

A job is submitted only for a cell of the user. When the job has ended, its kernel has, too; the next cell of the user
submits another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...errors import AgentError, GpuKernelError, HostKeyError, KernelStartError, SettingsError
from ...wire.runtime import Runtime
from ..kernel.core.events import StartFailed, StatusKnown, WaitExplained
from ..kernel.core.life import LinkState, Phase
from ..kernel.remote_kernel import RemoteKernel
from ..kernel.starter import LeftKernel, Starter
from ..kernel_settings import KernelSettings
from ..node.install import pack
from ..node.node import Node
from ..node.nodes import Nodes
from ..rpc import Call
from ..slurm import words
from ..slurm.commands import batch_script, job_name
from ..slurm.dialect import GONE
from ..slurm.scheduler import Scheduler
from .job import Job
from .job_nodes import JobNodes, Reached
from .job_table import JobTable

T = TypeVar("T")
_END_KNOWN_WITHIN = 10.0
"""Seconds until Slurm knows that a job has ended whose kernel is gone."""
_RESTART_WITHIN = 1.0
"""Seconds in which the request for a restart follows an interrupt, where a front end sends both."""
_RETRY = 10.0
"""Seconds until Slurm is asked again that has not answered."""


class JobStarter(Starter):
    """Starts one kernel in a job."""

    def __init__(
        self,
        runtime: Runtime,
        nodes: Nodes,
        table: JobTable,
        scheduler: Scheduler,
        job_nodes: JobNodes,
        log: logging.Logger,
    ) -> None:
        super().__init__(runtime, nodes.no_link, log)
        self._table = table
        self._scheduler = scheduler
        self._job_nodes = job_nodes
        self._interrupted = False
        self._search = False
        self._replaced = ""  # the kernel that this one replaces, in the same job
        self._reported_end: float | None = None  # when the job ends, as the kernel knows it from us
        self._job: Job | None = None
        self._started = False
        self._ours_to_cancel = True  # False: a kernel may run in the job already

    async def prepare(self, settings: KernelSettings, call: Call, restarted_on: str) -> KernelSettings:
        """Sign in to the login node, as a job is submitted without asking the user."""
        login = self._job_nodes.login(settings)
        login.add_name(settings.name)
        await login.signed_in(call)
        return settings

    async def _run(self, remote: RemoteKernel, adopted: bool) -> None:
        """A hub that was killed, or an earlier kernel of the notebook, may have submitted the job already. At the end
        decide what becomes of the job."""
        await self._table.files.loaded()
        self._search |= self._table.may_have(remote, adopted=adopted)
        await super()._run(remote, adopted)
        if self._job is not None:
            self._table.leave(self._job, remote, started=self._started or not self._ours_to_cancel)

    # -------------------------------------------------------------------------------------- calls of the kernel

    def interrupted(self) -> None:
        """Note that the user has interrupted the kernel: the job is not wanted any more."""
        self._interrupted = True

    def lost(self, remote: RemoteKernel, error: GpuKernelError) -> bool:
        """Note that the kernel's keeper does not exist any more. Slurm is asked why, also after the start."""
        super().lost(remote, error)
        return True

    async def find_left(self, remote: RemoteKernel, notebook: str) -> bool:
        """Note that the kernel's notebook is known now, which may have a job."""
        remote.settings = remote.settings.replace(notebook=notebook)
        if self._job is None:
            self._search |= self._table.may_have(remote, adopted=False)
            remote.wake()
        return False

    def replace(self, remote: RemoteKernel, left: LeftKernel, stop: Callable[[], Awaitable[None]]) -> bool:
        """Start the kernel `remote` in the job of the kernel `left`, which the front end restarts by starting `remote`.
        Call `stop` for the kernel `left` only afterwards, as a job ends with its last kernel. Return False if `remote`
        has a job of its own already."""
        if not remote.not_started or (self._job is not None and self._replaced != left.kernel_id):
            return False
        self._search = self._search or self._job is None
        self._replaced, self._stop_replaced = left.kernel_id, stop
        remote.settings = remote.settings.replace(fresh=True)  # else the node returns the kernel `left`
        remote.wake()
        return True

    # -------------------------------------------------------------------------------------- one job

    @property
    def _knows_place(self) -> bool:
        return self._search

    async def _start(self, remote: RemoteKernel) -> None:
        """Find the kernel's job, or submit one, and start the kernel when the job runs."""
        self._interrupted = self._started = False
        node = self._job_nodes.login(remote.settings)
        login = node.name
        job = await self._find(remote, node)
        if job is None and remote.must_be_found:
            return await self._end(remote, self._table.former(remote, login))
        self._ours_to_cancel = remote.not_started and (job is None or job.state.state == "PENDING")
        if job is None and remote.start_wanted:
            job = await self._submit(remote, login)
            if job is None:
                return await self._give_up(remote)
        if job is None:
            return
        self._job = job
        self._table.enter(job, remote)
        if await self._wait_until_running(remote, job):
            await self._start_in(remote, job)

    async def _find(self, remote: RemoteKernel, login: Node) -> Job | None:
        """Return the job that the kernel, or its notebook's last one, has already; None if there is none. While Slurm
        cannot be asked, ask again."""
        while self._search and not remote.closed:
            try:
                job = await self._table.find(remote, login.name, self._replaced)
            except GpuKernelError as error:
                if error.login and not login.alive:
                    await self._wait_for_sign_in(remote, login, error)
                else:
                    remote.report(WaitExplained(f"{login.name}: looking for the job of this kernel: {error}"))
                    await asyncio.sleep(_RETRY)
            else:
                self._search = False
                return job
        return None

    async def _wait_for_sign_in(self, remote: RemoteKernel, login: Node, error: GpuKernelError) -> None:
        """End the cells that wait for the start with the error, as only the user can sign in. Return when another
        attempt may succeed, or the next cell waits."""
        if remote.must_be_found:
            remote.link.problem = error
            remote.detached("")
        else:
            remote.report(StartFailed(error))
        await _done_unless(lambda: remote.start_wanted, login.sign_in_may_succeed(), remote)

    async def _submit(self, remote: RemoteKernel, login: str) -> Job | None:
        """Return a new job, or the job that is shared; None if the job is not wanted any more. While Slurm does not
        answer, try again."""
        self._show_waiting(remote)
        remote.report(WaitExplained(f"{login}: submitting a Slurm job for this kernel"))
        package = await asyncio.to_thread(pack)
        script = batch_script(remote.settings.at_login(), remote.kernel_id, package)
        async with self._table.submitting(remote.settings, login):
            while self._wanted(remote):
                try:
                    if shared := await self._table.shared(remote.settings, login):
                        return shared
                    job_id = await self._scheduler.submit(script)
                    return self._table.submitted(job_id, remote, login)
                except GpuKernelError as error:
                    if not error.is_transient:
                        if not isinstance(error, SettingsError):  # else Slurm has refused the job
                            self._table.withdraw(job_name(script), self._scheduler, login)
                        raise
                    remote.report(WaitExplained(words.not_submitted_text(login, error)))
                await asyncio.sleep(_RETRY)
        self._table.withdraw(job_name(script), self._scheduler, login)
        return None

    def _wanted(self, remote: RemoteKernel) -> bool:
        """Whether the start goes on: somebody waits for the job, or a kernel may run in the job already."""
        given_up = self._interrupted or remote.end_wanted
        return not (remote.closed or (given_up and self._ours_to_cancel))

    async def _wait_until_running(self, remote: RemoteKernel, job: Job) -> bool:
        """Wait until the job runs, and return True; False if the job was cancelled, or the front ends have left."""
        remote.report(StatusKnown({"since": remote.status.get("since", self._runtime.time())}))
        while (self._wanted(remote) or await self._restarts(remote)) and not job.state.over:
            if job.state.node and job.state.state == "RUNNING":
                return True
            self._explain(remote, job, words.waiting_text(job.login, job.state, self._runtime.time()))
            await remote.change()
        await self._not_started(remote, job)
        return False

    async def _restarts(self, remote: RemoteKernel) -> bool:
        """Whether the kernel was interrupted only because it is restarted: jupyter_client does both."""
        if not self._interrupted:
            return False
        await remote.until(lambda: remote.phase is Phase.RESTART, _RESTART_WITHIN)
        self._interrupted = remote.phase is not Phase.RESTART
        return self._wanted(remote)

    async def _start_in(self, remote: RemoteKernel, job: Job) -> None:
        """Start the kernel in the job. `_started` tells whether it can be used."""
        try:
            reached = await self._reach(remote, job)
        except HostKeyError as error:
            self._lost, reached = error, None
        if reached is not None:
            known = remote.settings
            settings = reached.settings.replace(notebook=known.notebook, kernel_id=known.kernel_id)
            job.node = reached.node
            self._table.add_event(job, remote, "connection", reached.link.connection)
            self._started = await self._start_on(remote, reached.link, settings)
        await self._end_replaced()
        if not self._started:
            return await self._not_started(remote, job)
        self._table.add_event(
            job, remote, "start", f"the kernel was started in job {job.id} on {job.state.node}"
        )
        remote.report(StatusKnown({"job": job.state.to_json()}))

    async def _reach(self, remote: RemoteKernel, job: Job) -> Reached | None:
        """Connect to the job's node; None if the job is not wanted any more, or has ended."""

        def tell(step: str) -> None:
            self._explain(remote, job, words.starting_text(job.login, job.state, step))

        reaching = self._job_nodes.reach(remote.settings, job.state, tell)
        reached = await _done_unless(lambda: job.state.over or not self._wanted(remote), reaching, remote)
        if reached is not None and self._wanted(remote):
            tell("starting the kernel")
            return reached
        return None

    def _explain(self, remote: RemoteKernel, job: Job, text: str) -> None:
        """Show what a kernel waits for that is to be started in the job, or found there."""
        if not remote.must_be_found:
            remote.report(StatusKnown({"state": "waiting", "job": job.state.to_json()}, wanted=True))
        remote.report(WaitExplained(text))

    async def _not_started(self, remote: RemoteKernel, job: Job) -> None:
        """Leave the job, as the kernel was not started in it; raise the reason unless the user knows it."""
        if remote.closed or remote.must_be_found:  # `_serve` ends a kernel that was not found
            return
        self._job = None
        if not self._wanted(remote):
            why = "the cell that waited was interrupted" if self._interrupted else "its kernel was shut down"
            self._table.dismiss(job, remote, why)
            return await self._give_up(remote)
        lost = self._lost or AgentError("the kernel was not started", hop=job.login)
        may_have_ended = self._lost is not None and not isinstance(lost, HostKeyError)
        end = await self._table.end(job, _END_KNOWN_WITHIN if may_have_ended else 0.0)
        error = KernelStartError(lost.cause, hop=lost.hop, remedy=lost.remedy)
        if end is not None:
            cause = f"{end.cause}, before the kernel was started in it"
            job.kernels = [one for one in job.kernels if one is not remote]
            error = KernelStartError(cause, hop=job.login, remedy=end.remedy)
            error.fill_in("ID", remote.kernel_id)
        elif self._ours_to_cancel:
            self._table.dismiss(job, remote, lost.cause)
        raise error

    async def _serve(self, remote: RemoteKernel) -> None:
        """Watch the kernel and its job, until neither exists any more and the next cell may start another one."""
        job, away = self._job, False
        if job is None:  # it has ended
            return await super()._serve(remote)
        while not (remote.closed or self._is_over(remote, job) or remote.not_started):
            if remote.link_state is LinkState.AWAY and not away:
                self._table.look(job)
            away = remote.link_state is LinkState.AWAY
            self._show(remote, job)
            await remote.change()
        if not remote.closed and not remote.not_started:
            await self._end(remote, job)
            if job.state.over:
                await self._job_nodes.leave(job.id, job.login)
        await remote.until(lambda: remote.not_started)
        if not remote.closed:
            self._job = None
            self._table.leave(job, remote, started=True)

    def _is_over(self, remote: RemoteKernel, job: Job) -> bool:
        """Whether the kernel's keeper is gone, or the job is. A controller that has lost its records is not believed
        as long as the keeper answers."""
        believed = job.state.state != GONE or remote.link_state is not LinkState.UP
        return self._lost is not None or (job.state.over and believed)

    def _show(self, remote: RemoteKernel, job: Job) -> None:
        """Show the job, with what only its own process knows, and tell the kernel when the job ends."""
        known = remote.status.get("job") or {}
        shown = {**known, **job.state.to_json()}
        shown["end_time"] = shown["end_time"] or known.get("end_time")
        if known != shown:
            remote.report(StatusKnown({"job": shown}))
        end_time = job.state.end_time
        if end_time is not None and end_time != self._reported_end:
            self._reported_end = end_time
            remote.command("job", end_time=int(end_time))

    async def _end(self, remote: RemoteKernel, job: Job) -> None:
        """Find out whether the job has ended or only the kernel's keeper, and tell the user."""
        end = None
        asked = bool(remote.status.get("asked")) or remote.phase is not Phase.RUN
        if job.state.over or not asked:
            end = await self._table.end(job, _END_KNOWN_WITHIN)
        if remote.closed or remote.not_started:
            return
        error = self._lost or AgentError(f"job {job.id} has ended", hop=job.login)
        if end is not None:
            end = end.for_front_end(revives=remote.core.ownership.revives)
            error = AgentError(end.cause, hop=job.login, remedy=end.remedy)
        remote.link.release(remote)
        if end is not None and not asked and remote.ended:  # the keeper reported only what it saw
            remote.report(StatusKnown({"cause": end.cause, "remedy": end.remedy}))
        error.fill_in("ID", remote.kernel_id)
        remote.end(error)

    # -------------------------------------------------------------------------------------- helpers

    def _fail(self, remote: RemoteKernel, error: GpuKernelError) -> None:
        """End the cells that wait with the error, as there is no job, or no kernel in it."""
        self._job = None
        super()._fail(remote, error)


async def _done_unless(given_up: Callable[[], bool], work: Awaitable[T], remote: RemoteKernel) -> T | None:
    """Return the result of the work; None if a change of the kernel lets the caller give the work up before."""
    working = asyncio.ensure_future(work)
    working.add_done_callback(lambda _: remote.wake())
    try:
        await remote.until(lambda: working.done() or given_up())
        return working.result() if working.done() else None
    finally:
        working.cancel()
        # An error that comes now is of no interest, and asyncio would log one that nobody reads.
        await asyncio.gather(working, return_exceptions=True)
