"""Tables of clusters with Slurm, for `gpus` and `add`: partitions, the nodes with GPUs, and the user's jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...wire import durations
from ...wire.kernel_settings import KernelSettings
from .tables import Columns, date, grid, ordinal, table

_MOST_NODES = 60
_MINUTE = "%Y-%m-%d %H:%M"


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
    return grid(heads, lines)


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


def _of_each(key: str) -> Callable[[dict[str, Any]], str]:
    """Return what makes the cell with this value of each kind of GPU of a node."""
    return lambda node: ", ".join(str(one[key]) for one in node["gpus"])


_NODES: Columns = (
    ("NODE", "name"),
    ("STATE", "state"),
    ("GPUS", lambda node: ", ".join(f"{one['total']} {one['type'] or 'GPUs'}" for one in node["gpus"])),
    ("IN USE", _of_each("used")),
    ("FREE", _of_each("free")),
    ("CPUS IN USE", lambda node: f"{node['cpus_used']}/{node['cpus']}"),
    ("PARTITIONS", lambda node: ", ".join(node["partitions"])),
)


def _why(job: dict[str, Any]) -> str:
    """Why the job waits, or until when it runs."""
    if job["state"] != "PENDING":
        return f"until {date(job['end_time'], _MINUTE)}" if job["end_time"] else ""
    facts = [job["reason"] or "not looked at yet"]
    facts += [f"{ordinal(job['place'])} in its partition"] if job["place"] else []
    start = job["start_estimate"]
    facts += [f"Slurm expects to start it {date(start, _MINUTE)}"] if start else []
    return ", ".join(facts)


_JOBS: Columns = (
    ("YOUR JOB", "id"),
    ("NAME", "name"),
    ("STATE", "state"),
    ("PARTITION", "partition"),
    ("NODES", lambda job: ", ".join(job["nodes"]) or "-"),
    ("WHY, OR UNTIL", _why),
)


def clusters(rows: Sequence[dict[str, Any]]) -> str:
    """Return what the operation `gpus` says of login nodes; "" if there is none."""
    return "\n\n".join(_cluster(str(row["node"]), row["slurm"]) for row in rows)


def _cluster(login: str, slurm: dict[str, Any]) -> str:
    parts = [f"Slurm on {login}:", partitions(slurm["partitions"])]
    nodes = [node for node in slurm["nodes"] if node["gpus"]]
    if nodes:
        parts += ["", table(_NODES, nodes[:_MOST_NODES])]
    if len(nodes) > _MOST_NODES:
        parts.append(f"… and {len(nodes) - _MOST_NODES} more nodes (--json lists all)")
    if slurm["jobs"]:
        parts += ["", table(_JOBS, slurm["jobs"])]
    return "\n".join(parts)
