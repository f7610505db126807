"""All kernels in jobs, as the hub sees them: their starters, the nodes of their jobs, and the jobs without a kernel.

A kernelspec with `slurm` leads to a login node, where no agent runs. So requests to all nodes go to those of the jobs
that run, and rows about the jobs that wait are made from what Slurm says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from typing import Any

from ...errors import AgentError, GpuKernelError, HostKeyError
from ...wire.runtime import Runtime
from ..kernel.kernel_state import NO_CELLS
from ..kernel_settings import KernelSettings, Spec
from ..node.node import Node
from ..node.nodes import NodeReply, NodeRequest, Nodes
from ..node.shared_connection import RouteSettings
from ..rpc import Call
from ..slurm.dialect import JobState
from ..slurm.scheduler import Schedulers
from .job import Job
from .job_files import JobFiles
from .job_nodes import JobNodes, output_rows
from .job_starter import JobStarter
from .job_table import JobTable

_REACH_WITHIN = 8.0
"""Seconds to connect to the node of a job that runs, for one request."""
_READ_WITHIN = 5.0
"""Seconds that a command waits for the files in the user's home. Without these files the command shows less."""


class JobKernels:
    """All kernels in jobs: `starter` starts each of them, and the operations of commands ask about all."""

    def __init__(
        self, runtime: Runtime, nodes: Nodes, schedulers: Schedulers, files: JobFiles, log: logging.Logger
    ) -> None:
        self._runtime = runtime
        self._nodes = nodes
        self._schedulers = schedulers
        self._log = log
        self._job_nodes = JobNodes(nodes, schedulers, log)
        self._table = JobTable(runtime, schedulers, files, self._job_nodes, log)
        self._replies = weakref.WeakKeyDictionary[Call, dict[Node, NodeReply]]()  # Slurm's, by login nodes

    @property
    def in_use(self) -> bool:
        """Whether a job is kept for a notebook, or is being ended."""
        return self._table.in_use

    def starter(self, settings: KernelSettings) -> JobStarter:
        """Return what starts a kernel with these settings."""
        scheduler = self._schedulers.of(settings.at_login())
        return JobStarter(self._runtime, self._nodes, self._table, scheduler, self._job_nodes, self._log)

    def routes(self, settings: KernelSettings) -> str:
        """Return by which routes the nodes of jobs are reached, in words."""
        return self._job_nodes.routes(settings)

    # -------------------------------------------------------------------------------------- for all nodes

    async def ask_each(
        self, call: Call, request: NodeRequest, specs: list[Spec] | None = None
    ) -> list[NodeReply]:
        """Do what `Nodes.ask_each` does, but ask the nodes of the user's running jobs instead of login nodes."""
        given = call.specs if specs is None else specs
        direct = [spec for spec in given if not spec.settings.slurm]

        async def ask_jobs(specs: list[Spec]) -> list[NodeReply]:
            errors: list[NodeReply] = []
            active = await self._active(specs[0], call, errors)
            asked = await asyncio.gather(*(self._spec(specs, job, call) for job in active))
            errors += [one for one in asked if isinstance(one, NodeReply)]
            found = [(job, one) for job, one in zip(active, asked, strict=True) if isinstance(one, Spec)]
            replies = await self._nodes.ask_each(call, request, [one for _, one in found])
            for reply in [one for one in replies if one.error is not None]:
                jobs = [job for job, spec in found if self._nodes.of(spec.settings) is reply.node]
                if all([await _has_ended(job, call) for job in jobs]):
                    replies.remove(reply)
            return replies + errors

        of_nodes = self._nodes.ask_each(call, request, direct)
        answers = await asyncio.gather(of_nodes, *map(ask_jobs, self._by_login(given)))
        return [reply for one in answers for reply in one]

    async def with_jobs(self, rows: list[dict[str, Any]], call: Call) -> list[dict[str, Any]]:
        """Return the rows of `ps` with the kernels' jobs, and rows for the jobs in which no kernel was found."""
        for job in await self._active_jobs(call):
            kernels = self._kernels_in(job)
            found = [row for row in rows if _is_in(row, job.id, kernels)]
            for row in found:
                route = self._job_nodes.route_of(job.id, job.login)
                row["job"] = {**(row.get("job") or {}), **job.state.to_json(), "way": route}
                row["ends_at"] = row["job"].get("end_time")
            if not found:
                rows.append(self._row(job.state, job.login))
        return rows

    def _row(self, job: JobState, login: str) -> dict[str, Any]:
        """Return the row of `ps` for a job in which no kernel was found, with what is known of the job's kernel."""
        file = self._table.files.get(job.kernel_id)
        return {
            **NO_CELLS,
            "id": job.kernel_id,
            "name": file.name,
            "node": login,
            "hop": login,
            "state": "waiting" if job.state == "PENDING" else "starting",
            "gpus": [],
            "pid": 0,
            "notebook": file.notebook,
            "attached": False,
            "attached_from": "",
            "place": job.place or None,
            "job": job.to_json(),
        }

    async def _active_jobs(self, call: Call) -> list[Job]:
        """Return our jobs that have not ended."""
        asking = (self._active(specs[0], call, []) for specs in self._by_login(call.specs))
        return [job for jobs in await asyncio.gather(*asking) for job in jobs]

    async def _active(self, spec: Spec, call: Call, errors: list[NodeReply]) -> list[Job]:
        """Return our jobs of one login node that have not ended. If Slurm cannot be asked, add the error to `errors`.

        Slurm is asked once for a call.
        """
        await self._table.files.loaded(_READ_WITHIN)
        replies, login = self._replies.setdefault(call, {}), self._job_nodes.login(spec.settings)
        if login not in replies:
            request = NodeRequest("jobs", asking=self._ask_slurm, who="Slurm")
            [replies[login]] = await self._nodes.ask_each(call, request, [spec])
        reply = replies[login]
        errors += [reply] if reply.error is not None else []
        states = [state for state in reply.answer.get("jobs", []) if not state.over]
        listed = [self._table.listed(state, spec.settings, login.name) for state in states]
        return [job for job in listed if not (job.state.over or self._table.is_over(job.id, login.name))]

    async def _ask_slurm(self, login: Node, spec: Spec, call: Call | None) -> dict[str, Any]:
        await login.connected(call)
        return {"jobs": await self._schedulers.of(spec.settings.at_login()).jobs()}

    async def _spec(self, specs: list[Spec], job: Job, call: Call) -> Spec | NodeReply | None:
        """Return the spec that leads to the node of a job, or the error why none does; None if the job waits."""
        state, login = job.state, self._job_nodes.login(specs[0].settings)
        if state.state == "PENDING" or not state.node:
            return None
        name = self._table.files.get(state.kernel_id).name
        spec = next((one for one in specs if one.name == name), specs[0])
        running = [one for one in job.kernels if not (one.not_started or one.must_be_found)]
        if running:
            return spec._replace(settings=running[0].settings.replace(slurm=False))
        call.progress(login.name, f"connecting to job {state.id}")
        reach = self._job_nodes.reach(spec.settings, state, lambda text: None)
        try:
            reached = await asyncio.wait_for(reach, _REACH_WITHIN)
        except HostKeyError as wrong_key:
            return NodeReply(login, {}, wrong_key)
        except (GpuKernelError, asyncio.TimeoutError):
            if await _has_ended(job, call):
                return None
            cause = f"job {state.id} runs on {state.node}, but its process cannot be reached there"
            error = AgentError(cause, hop=login.name, remedy="Try again in a moment.")
            return NodeReply(login, {}, error)
        return spec._replace(settings=reached.settings.replace(slurm=False))

    def _kernels_in(self, job: Job) -> set[str]:
        """Return the ids of all kernels that are known to be in this job."""
        known = {file.kernel for file in self._table.files.of_job(job.id, job.login) if not file.over}
        return {one.kernel_id for one in job.kernels} | (known or {job.state.kernel_id})

    def _by_login(self, specs: list[Spec]) -> list[list[Spec]]:
        """Return the specs with `slurm`, grouped by their login nodes."""
        groups: dict[RouteSettings, list[Spec]] = {}
        for spec in specs:
            if spec.settings.slurm:
                node = self._job_nodes.login(spec.settings)
                groups.setdefault(node.settings, []).append(spec)
        return list(groups.values())

    # -------------------------------------------------------------------------------------- one kernel

    async def cancel(self, kernel_id: str, call: Call, *, running: bool, kill: bool = False) -> bool:
        """Cancel the job for which this kernel alone waits, or, if `running`, also the job in which this kernel alone
        runs. With `kill` send SIGKILL to the job in which it runs, whatever else runs there. Return False if there is
        no such job."""
        for job in await self._active_jobs(call):
            waits = job.state.state == "PENDING"
            cancels = (waits or running) and not self._others(kernel_id, job, call)
            if kernel_id in self._kernels_in(job) and (cancels or (kill and not waits)):
                call.progress(job.login, f"cancelling job {job.id}")
                await job.scheduler.cancel(job.id, call, kill=kill and not waits)
                return True
        return False

    def _others(self, kernel_id: str, job: Job, call: Call) -> set[str]:
        """Return the ids of the other kernels that may need this job."""
        name = self._table.files.get(kernel_id).name
        shared = [one.settings.share_job for one in call.specs if one.name == name]
        # Only a kernel with a front end waits; and in a job that is not shared the others were restarted.
        knows_all = job.state.state == "PENDING" or shared == [False]
        known = {one.kernel_id for one in job.kernels} if knows_all else self._kernels_in(job)
        return known - {kernel_id}

    async def stories(self, start: str) -> list[dict[str, Any]]:
        """Return a row {"id", "hop"} for each kernel in a job that this computer knows, if its id begins so."""
        await self._table.files.loaded(_READ_WITHIN)
        files = self._table.files.newest_first()
        return [{"id": one.kernel, "hop": one.login} for one in files if one.kernel.startswith(start)]

    async def story(self, kernel_id: str) -> list[dict[str, Any]]:
        """Return what this computer knows of a kernel in a job, as lines of its story."""
        await self._table.files.loaded(_READ_WITHIN)
        file = self._table.files.get(kernel_id)
        return [dict(one, hop=file.login) for one in file.events]

    async def output(self, kernel_id: str, call: Call) -> list[dict[str, Any]]:
        """Return what the kernel's job has printed, while it runs; afterwards the story has it."""
        file = self._table.files.get(kernel_id)
        if not file.job or file.over:
            return []
        specs = [spec for spec in call.specs if spec.settings.slurm]
        replies = await self.ask_each(call, NodeRequest("job", more=lambda node: {"job": file.job}), specs)
        found = [one for one in replies if one.error is None]
        return output_rows(found[0].answer["job"]["log"]["text"], hop=found[0].node.name) if found else []


def _is_in(row: dict[str, Any], job_id: str, kernels: set[str]) -> bool:
    """Whether a row of `ps` is about a kernel in this job, one of `kernels`."""
    return row.get("id") in kernels or (row.get("job") or {}).get("id") == job_id


async def _has_ended(job: Job, call: Call) -> bool:
    """Whether a job that was active when Slurm was asked is ending, or has ended since."""
    with contextlib.suppress(GpuKernelError, asyncio.TimeoutError):
        ended = await call.limited(call.within, job.scheduler.ended(job.id, job.slurm_name))
        return ended is not None or job.state.state == "COMPLETING"
    return False
