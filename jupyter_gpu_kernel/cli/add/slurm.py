"""`add --slurm`: what the login node says, and what the jobs ask for."""

from __future__ import annotations

from typing import Any

from ...wire import durations
from ...wire.kernel_settings import KernelSettings
from ..show.slurm import partitions


def result(slurm: dict[str, Any], settings: KernelSettings) -> list[str]:
    """Return the lines about the cluster, and what jobs ask for: the probe's "slurm", and the settings with what it
    chose."""
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
