"""`gpus` for clusters with Slurm: partitions, nodes, their GPUs, and the user's jobs, as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from ...errors import ConnectError, GpuKernelError
from ..kernel_settings import Spec
from ..node.link import TRY_AGAIN_SOON
from ..node.nodes import NodeReply, patience_of
from ..rpc import Call
from .dialect import JobState
from .partitions import SlurmCluster, counts
from .scheduler import Scheduler, Schedulers


async def cluster_rows(schedulers: Schedulers, specs: Iterable[Spec], call: Call) -> list[dict[str, Any]]:
    """Return one row for each login node: {"node", "hop", "slurm": {partitions, nodes, jobs}}, or {"node", "error"}."""
    found = {id(one): (one, spec) for spec in specs for one in [schedulers.of(spec.settings)]}
    patience = patience_of(call)
    if patience is None:
        return list(await asyncio.gather(*(_row(one, spec, call) for one, spec in found.values())))
    replies = (
        schedulers.repeated.reply(one, patience, partial(_row, one, spec, call), partial(_late, one.name))
        for one, spec in found.values()
    )
    return list(await asyncio.gather(*replies))


def _late(name: str, seconds: float) -> dict[str, Any]:
    error = ConnectError(f"Slurm has not answered for {seconds:.0f} s", hop=name, remedy=TRY_AGAIN_SOON)
    return {"node": name, "error": error.to_json(), "late": seconds}


async def _row(scheduler: Scheduler, spec: Spec, call: Call) -> dict[str, Any]:
    name = scheduler.name
    call.progress(name, "asking Slurm")
    try:
        cluster = await scheduler.cluster(call)
        jobs = await scheduler.all_jobs(call)
    except GpuKernelError as error:
        error.fill_in("NAME", spec.name)
        return {"node": name, "error": error.to_json()}
    return {"node": name, "hop": name, "slurm": view(cluster, jobs)}


class GpusInJobs:
    """Which GPUs the user's kernels in jobs have. They take no lease, so an agent outside of the job says that such a
    GPU is free while it is idle."""

    def __init__(self, replies: Iterable[NodeReply]) -> None:
        """`replies`: those of the nodes of jobs, about their kernels."""
        self._held = [
            (reply.node, uuid, kernel["job"]["id"])
            for reply in replies
            for kernel in reply.answer.get("kernels", [])
            if kernel.get("job")
            for uuid in kernel.get("gpus", [])
        ]

    def mark(self, reply: NodeReply) -> NodeReply:
        """Return a node's reply about its GPUs, in which these are not free: what the same machine says counts."""
        held = {uuid: job_id for node, uuid, job_id in self._held if node.same_as(reply.node)}
        rows = [
            dict(row, free=False, reason=f"your job {held[row['uuid']]} has it")
            if row["uuid"] in held
            else row
            for row in reply.answer.get("gpus", [])
        ]
        return reply._replace(answer={**reply.answer, "gpus": rows}) if held else reply


def with_clusters(gpus: list[dict[str, Any]], clusters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of GPUs on the nodes of jobs, which nobody can take without Slurm, and those of login nodes; the
    error of a login node once."""
    failed = {row["node"] for row in gpus if "error" in row}
    reason = "Slurm assigns the GPUs of this node"
    rows = [row if "error" in row else dict(row, free=False, reason=reason) for row in gpus]
    return rows + [row for row in clusters if not ("error" in row and row["node"] in failed)]


def view(cluster: SlurmCluster, jobs: Iterable[JobState]) -> dict[str, Any]:
    """Return {partitions, nodes: [{name, partitions, state, cpus, cpus_used, memory_mib, gpus}], jobs}."""
    return {
        "partitions": [one.to_json() for one in cluster.partitions],
        "nodes": [
            {
                "name": host.name,
                "partitions": names,
                "state": host.state,
                "cpus": host.cpus,
                "cpus_used": host.cpus_used,
                "memory_mib": host.memory_mib,
                "gpus": [{"type": kind, **counts([host], kind)} for kind in sorted(host.gpus)],
            }
            for host, names in cluster.hosts
        ],
        "jobs": [_job(one) for one in jobs if not one.over],
    }


def _job(job: JobState) -> dict[str, Any]:
    row = job._asdict()
    del row["problem"]
    return {**row, "nodes": list(job.nodes)}
