"""The verb `list`: the kernelspecs of remote GPU kernels."""

from __future__ import annotations

import sys

from .. import kernelspecs
from ..errors import SettingsError
from ..wire.kernel_settings import KernelSettings
from .show import tables
from .verb import NO_KERNELSPEC, Verb, print_errors, print_json


class List(Verb):
    verb = "list"
    summary = "List the kernelspecs of remote GPU kernels."

    def run(self) -> int:
        bad: list[SettingsError] = []
        specs = kernelspecs.find_all(bad.append)
        if self.args.json:
            print_json([one.to_json() for one in specs])
        elif specs:
            print(tables.table(("NAME", "GPUS", "PYTHON", "WAY", "KERNELSPEC"), list(map(_row, specs))))
        elif not bad:
            sys.stderr.write(f"{NO_KERNELSPEC}\n")
        return print_errors(bad)


def _row(spec: kernelspecs.Kernelspec) -> tuple[str, ...]:
    settings = spec.settings
    python = settings.python or "the best one found"
    return spec.name, _gpus(settings), python, _route(settings), str(spec.path)


def _gpus(settings: KernelSettings) -> str:
    """How many GPUs, and which: "2 3090, 20G"."""
    kind = f"{settings.gpus} {settings.gpu_type}".strip()
    return ", ".join(filter(None, (kind, settings.min_memory)))


def _route(settings: KernelSettings) -> str:
    """The hops; of several hosts all, in place of the last host; and the job of Slurm, with its partition."""
    *jumps, last = settings.route
    job = f"Slurm job ({settings.partition})" if settings.partition else "Slurm job"
    hops = [*jumps, ", ".join(settings.hosts or [last]), *settings.via]
    route = " → ".join([*hops, job] if settings.slurm else hops)
    return route if settings.transport == "auto" else f"{route} (by {settings.transport})"
