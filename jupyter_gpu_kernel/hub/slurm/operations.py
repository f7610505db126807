"""What commands do on login nodes: `add --slurm` and `check` (a Python, the partitions, and what sbatch says of such a
job), and `gpus` (partitions, nodes, their GPUs, and the user's jobs).

No agent is started on a login node, and no job is left.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterable
from typing import Any

from ..kernel_settings import KernelSettings, Spec
from ..node.check.check import Report, answer_without_gpus
from ..node.install import pack
from ..node.node import Node
from ..node.nodes import NodeRequest, Nodes
from ..rpc import Call
from .commands import batch_script
from .dialect import JobState
from .partitions import SlurmCluster, choose, counts
from .scheduler import Scheduler, Schedulers

_NO_FOLDER, _NO_REVISION = 3, 4  # exit statuses of the check
_HOME = re.compile(r"~[\w.-]*(/|$)")
"""What a shell replaces by a home folder, if it is not quoted."""
_TEST = "test"  # in place of a kernel's id


async def probe_slurm(
    scheduler: Scheduler, node: Node, settings: KernelSettings, call: Call
) -> dict[str, Any]:
    """Return what the operation `probe` does of a node, and under "slurm" {version, partitions, chosen, notes,
    test}."""
    call.progress(node.name, "looking for Slurm")
    version = (await scheduler.commands(call)).version
    found, connection = await node.find_pythons(settings.python, call, settings.setup)
    call.progress(node.name, "reading the partitions (sinfo)")
    cluster = await scheduler.cluster(call)
    choice = choose(cluster, settings, node.name)
    call.progress(node.name, "asking Slurm whether it would take such a job (sbatch --test-only)")
    complete = settings.replace(**choice.settings, python=found.python.path)
    package = await asyncio.to_thread(pack)
    verdict = await scheduler.test(batch_script(complete, _TEST, package), call)
    warnings = await login_warnings(scheduler, settings, found.node.setup_problem, call)
    return {
        **answer_without_gpus(node, found, connection),
        "slurm": {
            "version": version,
            "partitions": [one.to_json() for one in cluster.partitions],
            "chosen": choice.settings,
            "notes": [*choice.notes, *warnings],
            "test": verdict,
        },
    }


async def check_slurm(
    schedulers: Schedulers,
    call: Call,
    gpu: bool,
    routes: str,
    report: Report,
    node: Node,
    settings: KernelSettings,
) -> None:
    """Add the steps of `check` on the login node: Slurm there, the partition, and the verdict of sbatch.

    `gpu`: whether the user asked to check frameworks, too, which needs a job. `routes`: how jobs' nodes are reached.
    """
    scheduler = schedulers.at(node)

    async def usable() -> str:
        cluster = await scheduler.cluster(call)
        chosen = choose(cluster, settings, node.name).settings["partition"]
        hosts = [host for host, names in cluster.hosts if set(names) & set(chosen.split(","))]
        kinds = sorted({kind for host in hosts for kind in host.gpus})
        free = ", ".join(
            f"{one['free']} of {one['total']} {kind or 'GPUs'}"
            for kind in kinds
            for one in [counts(hosts, kind)]
        )
        return f"{chosen}: {free} free" if free else str(chosen)

    await report.step("slurm", scheduler.commands(call), lambda found: found.version)
    await report.step("partition", usable(), lambda words: words)
    package = await asyncio.to_thread(pack)
    script = batch_script(settings, _TEST, package)
    await report.step("sbatch", scheduler.test(script, call), lambda words: words)
    report.add("way", 0.0, f"kernels are reached {routes}")
    if gpu:
        row = report.add(
            "gpu", 0.0, "not checked: the login node has no GPUs of jobs. Check in a kernel instead."
        )
        row["checked"] = False


async def login_warnings(
    scheduler: Scheduler, settings: KernelSettings, setup_problem: str, call: Call
) -> list[str]:
    """Return one sentence for each setting that fails on the login node already, and so may fail in a job.
    `setup_problem`: how the set-up lines failed there, or ""."""
    problems = [f"the set-up lines (--setup) fail: {setup_problem}"] if setup_problem else []
    if settings.cwd or settings.code:
        status = (await scheduler.run(_check(settings.cwd or "~", settings.code), call)).status
        if status == _NO_FOLDER:
            problems.append(f"the folder {settings.cwd} (--cwd) cannot be entered")
        elif status == _NO_REVISION:
            folder = settings.cwd or "the home folder"
            problems.append(f"git finds no revision {settings.code} (--code) in {folder}")
    place = f"(checked on {scheduler.name}; the job's nodes may differ)"
    return [f"Warning: {problem}; kernels may fail for this reason {place}." for problem in problems]


def _check(folder: str, revision: str) -> str:
    """Return a line of sh that looks for the folder, and for the revision if the login node has git."""
    home = match[0] if (match := _HOME.match(folder)) else ""
    rest = folder[len(home) :]
    steps = [f"cd -- {home}{shlex.quote(rest) if rest else ''} || exit {_NO_FOLDER}"]
    if revision:
        commit = shlex.quote(revision + "^{commit}")
        steps.append("command -v git || exit 0")
        steps.append(f"git rev-parse --verify {commit} || exit {_NO_REVISION}")
    return f"({'; '.join(steps)}) >/dev/null 2>&1"


# --- gpus


async def cluster_rows(
    nodes: Nodes, schedulers: Schedulers, specs: list[Spec], call: Call
) -> list[dict[str, Any]]:
    """Return one row for each login node: {"node", "hop", "slurm": {partitions, nodes, jobs}}, or {"node", "error"}."""

    async def ask(node: Node, spec: Spec, call: Call | None) -> dict[str, Any]:
        scheduler = schedulers.of(spec.settings)
        return {"slurm": view(await scheduler.cluster(call), await scheduler.all_jobs(call))}

    replies = await nodes.ask_each(call, NodeRequest("slurm", asking=ask, who="Slurm"), specs)
    rows = ({"node": one.node.name, "hop": one.node.name, **one.answer} for one in replies)
    return [row if one.error is None else one.error_row for one, row in zip(replies, rows, strict=True)]


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
        "jobs": [one.listed() for one in jobs if not one.over],
    }
