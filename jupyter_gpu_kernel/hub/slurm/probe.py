"""`add --slurm` and `check` on a login node: a Python, the partitions, and what sbatch says of such a job.

No agent is started there, and no job is left.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..kernel_settings import KernelSettings
from ..node.check.check_report import Report
from ..node.check.probe import answer_without_gpus
from ..node.install.agent_file import pack
from ..node.node import Node
from ..rpc import Call
from .batch_script import batch_script
from .choice import choose
from .partitions import counts
from .scheduler import Scheduler, Schedulers

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
    complete = settings._replace(**choice.settings, python=found.python.path)
    package = await asyncio.to_thread(pack)
    verdict = await scheduler.test(batch_script(complete, _TEST, package), call)
    return {
        **answer_without_gpus(node, found, connection),
        "slurm": {
            "version": version,
            "partitions": [one.to_json() for one in cluster.partitions],
            "chosen": choice.settings,
            "notes": choice.notes,
            "test": verdict,
        },
    }


async def check_slurm(
    schedulers: Schedulers,
    call: Call,
    gpu: bool,
    ways: str,
    report: Report,
    node: Node,
    settings: KernelSettings,
) -> None:
    """Add the steps of `check` on the login node: Slurm there, the partition, and the verdict of sbatch.

    `gpu`: it was asked to check frameworks, too, which needs a job. `ways`: how jobs' nodes are reached.
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
    report.add("way", 0.0, f"kernels are reached {ways}")
    if gpu:
        row = report.add(
            "gpu", 0.0, "not checked: the login node has no GPUs of jobs. Check in a kernel instead."
        )
        row["checked"] = False
