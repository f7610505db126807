"""All kernels in jobs, as the hub sees them: their starters, the nodes of their jobs, and the jobs that wait.

A kernelspec with `slurm` leads to a login node, where no agent runs. So requests to all nodes go to those of the jobs
that run, and rows about the jobs that wait are made from what Slurm says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ...errors import AgentError, GpuKernelError
from ...wire.runtime import Runtime
from ..kernel.remote_kernel import RemoteKernel
from ..node.node_link import NoLink
from ..node.nodes import NodeReply, Nodes
from ..rpc import Call
from ..slurm.commands import JOB_NAME
from ..slurm.dialect import JobState
from ..slurm.scheduler import Schedulers
from .job_nodes import JobNodes, login_settings
from .job_starter import JobStarter
from .job_table import JobTable, OurJob, describe
from .records import Records

_REACH_WITHIN = 15.0
"""Seconds to connect to the node of a job that runs, for one request."""


class JobKernels:
    """`starter` and `begin` for each kernel; `specs`, `rows`, `stop` and `story` for the operations of commands."""

    def __init__(
        self,
        runtime: Runtime,
        nodes: Nodes,
        schedulers: Schedulers,
        folder: Path,
        delivered: Callable[[dict[str, Any], str], Path],
        log: logging.Logger,
    ) -> None:
        """`folder`: for the records of kernels; `delivered(settings, kernel id)`: the file for the counts of one."""
        self._runtime = runtime
        self._nodes = nodes
        self._schedulers = schedulers
        self._delivered = delivered
        self._log = log
        self._table = JobTable(runtime, schedulers, Records(folder), log)
        self._job_nodes = JobNodes(nodes, log)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_use(self) -> bool:
        """Whether a job is kept for a notebook, or is being ended."""
        return self._table.in_use

    def starter(self, settings: dict[str, Any]) -> JobStarter | None:
        """Return what starts a kernel with these settings; None if it does not run in a job."""
        if not settings.get("slurm"):
            return None
        scheduler = self._schedulers.of(login_settings(settings))
        return JobStarter(self._runtime, self._table, scheduler, self._job_nodes, self._delivered, self._log)

    def no_link(self, settings: dict[str, Any]) -> NoLink:
        """Return the link of a kernel that is not started."""
        return NoLink(self._job_nodes.login(settings).name)

    def begin(self, starter: JobStarter, remote: RemoteKernel, *, adopted: bool) -> None:
        """Let the starter work for this kernel."""
        self._spawn(starter.run(remote, adopted=adopted))

    # -------------------------------------------------------------------------------------- for all nodes

    async def specs(
        self, specs: list[dict[str, Any]], call: Call
    ) -> tuple[list[dict[str, Any]], list[NodeReply]]:
        """Return the specs with those of jobs that run instead of those that lead to a login node; and the errors of
        login nodes and jobs that cannot be asked."""
        found = [spec for spec in specs if not spec["settings"].get("slurm")]
        errors: list[NodeReply] = []
        for login_specs in self._by_login(specs):
            asked = await asyncio.gather(
                *(
                    self._spec(login_specs, job, call)
                    for job in await self._active(login_specs[0], call, errors)
                )
            )
            found += [spec for spec, _ in asked if spec is not None]
            errors += [error for _, error in asked if error is not None]
        return found, errors

    async def rows(self, specs: list[dict[str, Any]], call: Call) -> list[dict[str, Any]]:
        """Return rows for `ps`: the kernels whose jobs wait, and those of front ends here that have no job yet."""
        rows: list[dict[str, Any]] = []
        for login_specs in self._by_login(specs):
            node = self._job_nodes.login(login_specs[0]["settings"])
            for job in await self._active(login_specs[0], call, []):
                ours = next((one for one in self._table if (one.id, one.login) == (job.id, node.name)), None)
                waiting = [one for one in ours.kernels if one.late_start.pending] if ours is not None else []
                rows += [dict(one.describe(), job=describe(job), attached=True) for one in waiting]
                if job.state == "PENDING" and not waiting:
                    rows.append(self._row(job, node.name))
        return rows

    def job_of(self, kernel_id: str) -> dict[str, Any] | None:
        """Return the job of a kernel that runs, for `--json`, as far as this hub knows."""
        for job in self._table:
            if any(one.kernel_id == kernel_id for one in job.kernels):
                return job.describe()
        return None

    def _row(self, job: JobState, login: str) -> dict[str, Any]:
        kernel_id = job.name[len(JOB_NAME) :]
        record = self._table.records.get(kernel_id)
        return {
            "id": kernel_id,
            "name": record.name,
            "node": login,
            "hop": login,
            "state": "waiting",
            "gpus": [],
            "pid": 0,
            "notebook": record.notebook,
            "attached": False,
            "attached_from": "",
            "job": describe(job),
        }

    async def _active(self, spec: dict[str, Any], call: Call, errors: list[NodeReply]) -> list[JobState]:
        """Return our jobs of one login node that have not ended."""
        settings = login_settings(spec["settings"])
        node = self._job_nodes.login(settings)
        call.progress(node.name, "asking Slurm")
        try:
            jobs = await self._schedulers.of(settings).jobs(call)
        except GpuKernelError as error:
            error.fill_in("NAME", str(spec.get("name") or ""))
            errors.append(NodeReply(node, {}, error))
            return []
        return [job for job in jobs if not job.over]

    async def _spec(
        self, specs: list[dict[str, Any]], job: JobState, call: Call
    ) -> tuple[dict[str, Any] | None, NodeReply | None]:
        """Return the spec that leads to the node of a job that runs, or the error why none does."""
        if job.state == "PENDING" or not job.node:
            return None, None
        name = self._table.records.get(job.name[len(JOB_NAME) :]).name
        spec = next((one for one in specs if one.get("name") == name), specs[0])
        login = self._job_nodes.login(spec["settings"])
        ours = next((one for one in self._table if (one.id, one.login) == (job.id, login.name)), None)
        running = [one for one in ours.kernels if not one.late_start.pending] if ours is not None else []
        if running:
            return {**spec, "settings": running[0].settings}, None
        call.progress(login.name, f"connecting to job {job.id}")
        scheduler = self._schedulers.of(login_settings(spec["settings"]))
        reach = self._job_nodes.reach(spec["settings"], job, scheduler, lambda text: None)
        try:
            reached = await asyncio.wait_for(reach, _REACH_WITHIN)
        except (GpuKernelError, asyncio.TimeoutError):
            cause = f"job {job.id} runs on {job.node}, but its process cannot be reached there"
            return None, NodeReply(
                login, {}, AgentError(cause, hop=login.name, remedy="Try again in a moment.")
            )
        return {**spec, "settings": reached.settings}, None

    def _by_login(self, specs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Return the specs with `slurm`, grouped by their login nodes."""
        groups: dict[Any, list[dict[str, Any]]] = {}
        for spec in specs:
            if spec["settings"].get("slurm"):
                node = self._job_nodes.login(spec["settings"])
                groups.setdefault(node.settings, []).append(spec)
        return list(groups.values())

    # -------------------------------------------------------------------------------------- one kernel

    async def stop(self, kernel_id: str, specs: list[dict[str, Any]], call: Call, *, kill: bool) -> bool:
        """Cancel the job of a kernel that waits; with `kill` send SIGKILL to the one in which it runs. Return False if
        there is none."""
        for login_specs in self._by_login(specs):
            scheduler = self._schedulers.of(login_settings(login_specs[0]["settings"]))
            for job in await self._active(login_specs[0], call, []):
                if kernel_id not in self._kernels_in(job, login_specs[0]):
                    continue
                if job.state != "PENDING" and not kill:
                    return False
                call.progress("", f"cancelling job {job.id}")
                await scheduler.cancel(job.id, "KILL" if job.state != "PENDING" else "", call)
                return True
        return False

    def story(self, kernel_id: str) -> list[dict[str, Any]]:
        """Return what this computer knows of a kernel in a job, as lines of its story."""
        record = self._table.records.get(kernel_id)
        return [dict(one, hop=record.login) for one in record.events]

    def _kernels_in(self, job: JobState, spec: dict[str, Any]) -> set[str]:
        login = self._job_nodes.login(spec["settings"]).name
        ours: list[OurJob] = [one for one in self._table if (one.id, one.login) == (job.id, login)]
        here = {kernel.kernel_id for one in ours for kernel in one.kernels}
        known = {record.kernel for record in self._table.records.of_job(job.id, login)}
        return here | known | {job.name[len(JOB_NAME) :]}

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)
