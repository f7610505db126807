"""The verb `add`, from its arguments to the kernelspec that it writes."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from ... import adding, kernelspecs
from ...errors import BY_LOGIN, AuthError, HostKeyError, SettingsError
from ...wire.kernel_settings import KernelSettings
from ..terminal import can_ask
from ..verb import Verb, print_json
from . import create_env
from .options import add_options, given_settings
from .questions import AddQuestions
from .result import next_step, probe_result


class Add(Verb):
    verb = "add"
    summary = "Connect to a machine, find a Python and its GPUs, and add a kernelspec for all front ends."
    usage = "[DESTINATION] [-J HOP[,HOP…]] [-i KEY] [--gpus N] [OPTION…]"
    notes = """Without DESTINATION, in a terminal, it asks for what it needs.

Examples:
  jupyter gpu-kernel add gpu2                                    a host that “ssh gpu2” reaches
  jupyter gpu-kernel add alice@gpu2 -J alice@login:7092 -i KEY   through a jump host
  jupyter gpu-kernel add alice@login --slurm --gpu-type a100     each kernel in a job of Slurm
  jupyter gpu-kernel add --hosts gpu1,gpu2 -J login --name lab   each kernel on the best of several machines
  jupyter gpu-kernel add gpu2 --create-env                       a machine whose Pythons have no ipykernel"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_options(parser)

    def run(self) -> int:
        args = self.args
        if not (args.destination or args.hosts or args.no_probe or args.json) and can_ask():
            AddQuestions(args, self._settings, self._probe).ask()
        if fault := self._usage_fault():
            sys.stderr.write(f"{fault}\n")
            return 2
        settings = self._settings()
        name = args.name if args.name is not None else adding.default_name(settings)
        kernelspecs.check_name(name, prefix=args.prefix, replace=args.replace)
        if args.no_probe and args.python and not args.python.startswith("/"):
            raise SettingsError(
                f"{args.python} is not an absolute path",
                remedy="Give the absolute path, or omit --no-probe to search for it on the node.",
            )
        made: list[dict[str, Any]] = []
        if args.create_env:
            settings, made = create_env.create(args, settings, name.lower(), self._ask_node)
        probe = None if args.no_probe else self._probe(settings)
        if probe is not None:
            adding.refuse_impossible(probe, settings)
            settings = adding.completed(settings, probe)
        spec = kernelspecs.write(name, settings, prefix=args.prefix, replace=args.replace)
        if args.json:
            print_json({**spec.to_json(), "probe": probe, **({"environments": made} if made else {})})
        else:
            found = probe_result(probe, settings) if probe else []
            print("\n".join([*found, *next_step(spec)]))
        return 0

    def _usage_fault(self) -> str:
        """Return why these arguments do not go together, or ""."""
        if bool(self._hosts()) == bool(self.args.destination):
            return "Give DESTINATION, or --hosts HOST,HOST for several machines, and not both."
        return create_env.usage_fault(self.args)

    def _hosts(self) -> list[str]:
        return adding.split_hosts(self.args.hosts or ())

    def _probe(self, settings: KernelSettings) -> dict[str, Any]:
        """Connect to the machine, and return what is there."""
        return dict(self._ask_node("probe", settings=settings.to_json()))

    def _ask_node(self, op: str, **arguments: Any) -> Any:
        try:
            return self.ask_hub(op, lines=not self.args.json, **arguments)
        except (AuthError, HostKeyError) as error:  # `login` needs a kernelspec, which does not exist yet
            error.fill_in(f"once {BY_LOGIN}", "by running this command in a terminal")
            raise

    def _settings(self) -> KernelSettings:
        """The settings that the arguments describe, checked before anything connects."""
        args = self.args
        hosts = self._hosts()
        route = adding.GivenRoute(
            hosts=hosts or [args.destination],
            several=bool(hosts),
            jumps=args.jumps or (),
            identity=args.identity or (),
            config=args.config or "",
            port=args.port,
        )
        try:
            return adding.settings_of(route, given_settings(args))
        except SettingsError as error:  # it names the kernelspec's key, and the user wrote an option
            error.cause = re.sub(r"“([a-z_]+)”", lambda key: adding.option_of(key[1]), error.cause)
            raise
