"""The verb `list`: the kernelspecs of remote GPU kernels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .. import kernelspecs
from ..errors import SettingsError
from ..wire import DEFAULT_GPUS
from .show import tables
from .verb import NO_KERNELSPEC, Verb, print_error, print_json


class List(Verb):
    verb = "list"
    summary = "List the kernelspecs of remote GPU kernels."

    def run(self) -> int:
        bad: list[SettingsError] = []
        specs = kernelspecs.find_all(bad.append)
        environments = _environments(specs)
        if self.args.json:
            print_json(
                [
                    {
                        "name": one.name,
                        "display_name": one.display_name,
                        "path": str(one.path),
                        "settings": one.settings,
                        **({"environment": environments[one.name]} if one.name in environments else {}),
                    }
                    for one in specs
                ]
            )
        elif specs:
            rows = [
                (one.name, _gpus(one.settings), _python(one.settings), _way(one.settings), str(one.path))
                for one in specs
            ]
            print(tables.table(("NAME", "GPUS", "PYTHON", "WAY", "KERNELSPEC"), rows))
        elif not bad:
            sys.stderr.write(f"{NO_KERNELSPEC}\n")
        for error in bad:
            print_error(error)
        return 1 if bad else 0


def _gpus(settings: dict[str, Any]) -> str:
    """How many GPUs, and which: "2 3090, 20G"."""
    number = str(settings.get("gpus", DEFAULT_GPUS))
    kind = f"{number} {settings.get('gpu_type', '')}".strip()
    return ", ".join(filter(None, (kind, settings.get("min_memory"))))


def _python(settings: dict[str, Any]) -> str:
    return settings.get("python") or "the best one found"


def _environments(specs: Sequence[kernelspecs.Kernelspec]) -> dict[str, str]:
    """The environment that each kernelspec's Python is in, of those that `add --create-env` made."""
    folders = {folder for one in specs if (folder := one.settings.get("env_dir"))}
    pythons = {one.name: str(one.settings.get("python") or "") for one in specs}
    return {
        name: folder
        for name, python in pythons.items()
        for folder in folders
        if python.startswith(f"{folder}/")
    }


def _way(settings: dict[str, Any]) -> str:
    """The hops; of several hosts all, in place of the last host; and the job of Slurm, with its partition."""
    *jumps, last = settings["route"]
    job = f"Slurm job ({settings['partition']})" if settings.get("partition") else "Slurm job"
    hops = [*jumps, ", ".join(settings.get("hosts") or [last]), *settings.get("via", ())]
    way = " → ".join([*hops, job] if settings.get("slurm") else hops)
    return f"{way} (by {settings['transport']})" if settings.get("transport") else way
