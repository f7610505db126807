"""`add --slurm`: its options, the settings that they describe, and what the login node says."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from ...hub.kernel_settings import KEEP_JOB, WARN_BEFORE
from ...settings import Settings
from ...slurm_settings import SIGNALS, WAYS
from ...wire import durations
from ..show.gpu_hours import span
from ..show.slurm import partitions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group(
        "Slurm", "DESTINATION is a login node, and each kernel runs in a job, which its first cell submits."
    )
    add = group.add_argument
    add("--slurm", action="store_true", help="run kernels in jobs of Slurm")
    add(
        "--partition",
        metavar="NAME",
        help="the partition (default: one with such GPUs, the cluster's default first)",
    )
    add(
        "--time",
        metavar="TIME",
        type=_time_limit,
        help="the time limit: 30m, 8h, 4:00:00, 1-12:00:00; a number alone are minutes, as for sbatch (default: "
        "4:00:00, or the partition's)",
    )
    add("--cpus", metavar="N", type=int, help="CPUs (sbatch --cpus-per-task)")
    add("--mem", metavar="SIZE", help="memory of each node: 32G (default: Slurm's, which may be small)")
    add(
        "--nodes",
        metavar="N",
        type=int,
        help="machines, each with --gpus GPUs; the kernel runs on the first (default: 1)",
    )
    add("--account", metavar="NAME", help="the account to charge")
    add("--qos", metavar="NAME", help="the quality of service")
    add(
        "--sbatch",
        metavar="OPTION",
        type=_option,
        action="append",
        help="one more option of sbatch, such as --sbatch=--constraint=ib; can be repeated",
    )
    add(
        "--warn-before",
        metavar="TIME",
        type=span,
        help=f"when, before the time limit, a signal tells the kernel (default: {WARN_BEFORE / 60:.0f}m; 0: never)",
    )
    add("--warn-signal", choices=SIGNALS, help=f"which signal that is (default: {Settings.warn_signal})")
    add("--share-job", action="store_true", help="kernels of this kernelspec share one job")
    add(
        "--keep-job",
        metavar="TIME",
        type=span,
        help="for how long a job that waits is kept after its notebook was closed (default: "
        f"{KEEP_JOB / 60:.0f}m; 0: not)",
    )
    add(
        "--way",
        choices=WAYS,
        help="the only way to the job's node: ssh, or srun on the login node, which can read what passes "
        "(default: ssh, else srun)",
    )


def _time_limit(text: str) -> str:
    """The type of --time: as Slurm writes it. What is no time is checked with the other settings."""
    with contextlib.suppress(argparse.ArgumentTypeError):
        return durations.limit(int(span(text))) if text[-1:].isalpha() else text
    return text


def _option(line: str) -> str:
    """The type of --sbatch: also a line from a batch script."""
    return line.strip().removeprefix("#SBATCH").strip()


def result(slurm: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """Return the lines about the cluster, and what jobs ask for: the probe's "slurm", and the settings with what it
    chose."""
    return [
        f"Slurm: {slurm['version']}",
        partitions(slurm["partitions"]),
        f"A job asks for: {_asked(settings)}",
        *(f"  {note}" for note in slurm["notes"]),
        f"Slurm would take such a job: {slurm['test']}",
    ]


def _asked(settings: dict[str, Any]) -> str:
    gpus, nodes = settings["gpus"], settings.get("nodes", 1)
    kind = settings.get("gpu_type") or ("GPU" if gpus == 1 else "GPUs")
    facts = [f"{gpus} {kind}" if gpus else "no GPU"]
    facts += [f"on each of {nodes} nodes"] if nodes > 1 else []
    names = {
        "partition": "partition",
        "time": "time limit",
        "cpus": "CPUs",
        "mem": "memory",
        "account": "account",
    }
    time = durations.limit_seconds(settings.get("time") or "")
    settings = {**settings, "time": durations.limit(time)} if time else settings  # "90" are minutes
    facts += [f"{name} {settings[key]}" for key, name in {**names, "qos": "QOS"}.items() if settings.get(key)]
    return ", ".join(facts)
