"""The verbs `list` and `remove`: the kernelspecs of remote GPU kernels, and with `--env` the virtual environments that
`add --create-env` made for kernelspecs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from .. import adding, kernelspecs
from ..errors import AgentError, SettingsError
from ..wire.kernel_settings import KernelSettings
from ..wire.texts import printable
from .show import tables
from .terminal import agrees, can_ask
from .verb import NO_KERNELSPEC, Verb, errors_of, print_errors, print_json


class List(Verb):
    verb = "list"
    summary = "List the kernelspecs of remote GPU kernels."

    def run(self) -> int:
        bad: list[SettingsError] = []
        specs = kernelspecs.find_all(bad.append)
        if self.args.json:
            print_json([{**one.to_json(), **_environment(one, specs)} for one in specs])
        elif specs:
            print(tables.table(_COLUMNS, specs))
        elif not bad:
            sys.stderr.write(f"{NO_KERNELSPEC}\n")
        return print_errors(bad)


def _gpus(settings: KernelSettings) -> str:
    """How many GPUs, and which: "2 3090, 20G"."""
    kind = f"{settings.gpus} {settings.gpu_type}".strip()
    return ", ".join(filter(None, (kind, settings.min_memory)))


def _environment(spec: kernelspecs.Kernelspec, specs: Sequence[kernelspecs.Kernelspec]) -> dict[str, str]:
    """Return {"environment": FOLDER} if the Python is in an environment that `add --create-env` made, for whichever one
    of these kernelspecs."""
    folders = (one.settings.env_dir for one in specs if one.settings.env_dir)
    used = next((folder for folder in folders if spec.settings.python.startswith(f"{folder}/")), "")
    return {"environment": used} if used else {}


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
    summary = "Remove a kernelspec, and on request its environment on the node. Running kernels keep running."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", metavar="NAME")
        parser.add_argument(
            "--env",
            action="store_true",
            help="first remove the environment on the node that “add --create-env” made, if nothing else uses it",
        )
        parser.add_argument(
            "--yes",
            action="store_true",
            help="with --env: do not ask before packages are removed that you have added",
        )

    def run(self) -> int:
        environments = self._remove_environment() if self.args.env else []
        folders, notes = adding.remove(self.args.spec)
        if self.args.json:
            more = {"environments": environments} if self.args.env else {}
            print_json({"removed": folders, **more})
        else:
            made = [
                f"the environment {one['path']} on {one['node']} ({one['mib']} MiB)" for one in environments
            ]
            lines = [f"Removed: {one}" for one in [*made, *folders]]
            print(printable("\n".join(lines if self.args.env else [*lines, *notes])))
        return 0

    def _remove_environment(self) -> list[dict[str, Any]]:
        """Remove the environment from each host that has one of its own. Return [{"node", "path", "mib"}]."""
        spec = kernelspecs.find(self.args.spec)
        path = spec.settings.env_dir
        if not path:
            python = spec.settings.python or "no Python in particular"
            raise SettingsError(
                f"the kernelspec {spec.name} has no environment that “add --create-env” made for it "
                f"(it uses {python})",
                remedy=f"“jupyter gpu-kernel remove {spec.name}” removes the kernelspec alone.",
            )
        self._refuse_other_kernelspecs(spec.name, path)
        if spec.settings.slurm:
            self._refuse_jobs(spec)
        hosts = {}
        for one in spec.settings.each_host():
            status = self._ask("environment_status", one, path=path)
            if status["there"] and not status["id"]:
                raise AgentError(
                    f"{path} is not (or no longer) an environment that “add --create-env” made",
                    hop=status["node"],
                    remedy=f"Nothing was removed. Without --env, “remove {spec.name}” removes the kernelspec alone.",
                )
            hosts[status["id"] or status["node"]] = (one, status)
            _refuse_running(status, path)
        found = {key: pair for key, pair in hosts.items() if pair[1]["there"]}
        if not found and not self.args.json:
            print(printable(f"The environment {path} is not there any more."))
        for _, status in found.values():
            self._require_consent(status)
        return [
            self._ask("remove_environment", settings, path=path, env_id=status["id"])
            for settings, status in found.values()
        ]

    def _ask(self, op: str, settings: KernelSettings, **arguments: Any) -> Any:
        lines = not self.args.json
        return self.ask_hub(op, lines=lines, settings=settings.to_json(), name=self.args.spec, **arguments)

    def _refuse_other_kernelspecs(self, name: str, path: str) -> None:
        """Raise if another kernelspec has its Python in an environment with this path, on whichever node."""
        for other in kernelspecs.find_all():
            if other.name != name and other.settings.python.startswith(f"{path}/"):
                raise SettingsError(
                    f"the kernelspec {other.name} has its Python in the environment {path}, too",
                    remedy=f"Nothing was removed. First run “jupyter gpu-kernel remove {other.name}”.",
                )

    def _refuse_jobs(self, spec: kernelspecs.Kernelspec) -> None:
        """Raise if kernels of the kernelspec are in jobs: their nodes cannot be searched from the login node."""
        rows = self.ask_hub("ps", specs=[spec.for_hub])
        for error in errors_of(rows):
            raise error
        users = [{"kernel": row["id"]} for row in rows if row.get("name") in (spec.name, "", None)]
        _refuse_running({"users": users, "node": spec.settings.route[-1]}, spec.settings.env_dir)

    def _require_consent(self, status: dict[str, Any]) -> None:
        """Return if the user agrees that packages are removed which `add` did not install."""
        if not status["added"] or self.args.yes:
            return
        names = ", ".join(" ".join(one) for one in status["added"][:40])
        text = f"{status['node']}: the environment ({status['mib']} MiB) also has packages that you have added: {names}"
        if self.args.json or not can_ask():
            raise SettingsError(
                printable(text), remedy="Nothing was removed. To remove them, too, add --yes."
            )
        if not agrees(printable(f"{text}\n") + "Remove it with them?", by_default=False):
            raise SettingsError("the environment was not removed", remedy="Nothing was changed.")


def _refuse_running(status: dict[str, Any], path: str) -> None:
    kernels = [str(one["kernel"]) for one in status["users"]]
    if kernels:
        raise AgentError(
            f"these kernels use the environment {path}: {', '.join(kernels[:10])}",
            hop=status["node"],
            remedy=f"Nothing was removed. First run “jupyter gpu-kernel stop {' '.join(kernels[:10])}”.",
        )
