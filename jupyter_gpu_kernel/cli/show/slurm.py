"""Tables of clusters with Slurm, for `gpus` and `add`: partitions, the nodes with GPUs, and the user's jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ...wire import durations
from ...wire.kernel_settings import KernelSettings
from .tables import ordinal, table

_MOST_NODES = 60


def partitions(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of partitions."""
    heads = ("PARTITION", "TIME LIMIT", "NODES", "GPUS", "IN USE", "FREE")
    lines = []
    for row in rows:
        name = f"{row['name']}{' (default)' if row['default'] else ''}{'' if row['up'] else ' (not in use)'}"
        first = (name, str(row["time_limit"]), str(row["nodes"]))
        for gpu in row["gpus"] or [None]:
            lines.append((*first, *(_partition_gpus(gpu) if gpu else ("none", "", ""))))
            first = ("", "", "")
    return table(heads, lines)


def _partition_gpus(gpu: dict[str, Any]) -> tuple[str, str, str]:
    return (
        f"{gpu['total']} {gpu['type'] or 'of unknown type'} ({gpu['per_node']} a node)",
        str(gpu["used"]),
        str(gpu["free"]),
    )


def probe_result(slurm: dict[str, Any], settings: KernelSettings) -> list[str]:
    """Return what `add --slurm` says of the cluster, and what jobs ask for.

    slurm: Of the probe. settings: With what the probe chose.
    """
    return [
        f"Slurm: {slurm['version']}",
        partitions(slurm["partitions"]),
        f"A job asks for: {_asked(settings)}",
        *(f"  {note}" for note in slurm["notes"]),
        f"Slurm would take such a job: {slurm['test']}",
    ]


def _asked(settings: KernelSettings) -> str:
    kind = settings.gpu_type or ("GPU" if settings.gpus == 1 else "GPUs")
    facts = [f"{settings.gpus} {kind}" if settings.gpus else "no GPU"]
    facts += [f"on each of {settings.nodes} nodes"] if settings.nodes > 1 else []
    seconds = durations.limit_seconds(settings.time)
    named = {
        "partition": settings.partition,
        "time limit": durations.limit(seconds) if seconds else settings.time,  # "90" are minutes
        "CPUs": settings.cpus,
        "memory": settings.mem,
        "account": settings.account,
        "QOS": settings.qos,
    }
    return ", ".join([*facts, *(f"{name} {value}" for name, value in named.items() if value)])


def clusters(rows: Sequence[dict[str, Any]]) -> str:
    """Return what the operation `gpus` says of login nodes; "" if there is none."""
    return "\n\n".join(_cluster(str(row["node"]), row["slurm"]) for row in rows)


def _cluster(login: str, slurm: dict[str, Any]) -> str:
    parts = [f"Slurm on {login}:", partitions(slurm["partitions"])]
    nodes = [node for node in slurm["nodes"] if node["gpus"]]
    if nodes:
        heads = ("NODE", "STATE", "GPUS", "IN USE", "FREE", "CPUS IN USE", "PARTITIONS")
        parts += ["", table(heads, [_node(node) for node in nodes[:_MOST_NODES]])]
    if len(nodes) > _MOST_NODES:
        parts.append(f"… and {len(nodes) - _MOST_NODES} more nodes (--json lists all)")
    if slurm["jobs"]:
        jobs = ("YOUR JOB", "NAME", "STATE", "PARTITION", "NODES", "WHY, OR UNTIL")
        parts += ["", table(jobs, [_job(job) for job in slurm["jobs"]])]
    return "\n".join(parts)


def _node(node: dict[str, Any]) -> tuple[str, ...]:
    gpus = node["gpus"]

    def each(key: str) -> str:
        return ", ".join(str(one[key]) for one in gpus)

    return (
        node["name"],
        node["state"],
        ", ".join(f"{one['total']} {one['type'] or 'GPUs'}" for one in gpus),
        each("used"),
        each("free"),
        f"{node['cpus_used']}/{node['cpus']}",
        ", ".join(node["partitions"]),
    )


def _job(job: dict[str, Any]) -> tuple[str, ...]:
    if job["state"] == "PENDING":
        facts = [job["reason"] or "not looked at yet"]
        facts += [f"{ordinal(job['place'])} in its partition"] if job["place"] else []
        facts += (
            [f"Slurm expects to start it {_date(job['start_estimate'])}"] if job["start_estimate"] else []
        )
        why = ", ".join(facts)
    else:
        why = f"until {_date(job['end_time'])}" if job["end_time"] else ""
    return job["id"], job["name"], job["state"], job["partition"], ", ".join(job["nodes"]) or "-", why


def _date(seconds_since_epoch: float) -> str:
    return datetime.fromtimestamp(seconds_since_epoch).strftime("%Y-%m-%d %H:%M")
