"""The verbs `list` and `remove`: the kernelspecs of remote GPU kernels."""

from __future__ import annotations

import argparse
import sys

from .. import adding, kernelspecs
from ..errors import SettingsError
from ..wire.kernel_settings import KernelSettings
from ..wire.texts import printable
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
            print(tables.table(_COLUMNS, specs))
        elif not bad:
            sys.stderr.write(f"{NO_KERNELSPEC}\n")
        return print_errors(bad)


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


_COLUMNS: tables.Columns = (
    ("NAME", lambda spec: spec.name),
    ("GPUS", lambda spec: _gpus(spec.settings)),
    ("PYTHON", lambda spec: spec.settings.python or "the best one found"),
    ("WAY", lambda spec: _route(spec.settings)),
    ("KERNELSPEC", lambda spec: str(spec.path)),
)


class Remove(Verb):
    verb = "remove"
    summary = "Remove a kernelspec. Running kernels keep running."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", metavar="NAME")

    def run(self) -> int:
        folders, notes = adding.remove(self.args.spec)
        lines = [*(f"Removed: {one}" for one in folders), *notes]
        self.print_result({"removed": folders}, printable("\n".join(lines)))
        return 0
