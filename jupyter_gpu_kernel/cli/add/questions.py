"""What `add` asks in a terminal where no machine was given.

The answers become arguments, as if the user had typed them, so that the rest of `add` does not know of the questions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from ... import adding, kernelspecs
from ...errors import CREATE_ENV, AgentError, RouteError, SettingsError
from ...hub.ssh.config.destination import parse_destination
from ...hub.ssh.config.route import hosts
from ...program import running_command
from ...wire.kernel_settings import KernelSettings, default_of
from ...wire.texts import as_typed, one_line
from ..terminal import agrees, ask_line, choose

Settings = Callable[[], KernelSettings]
"""Returns the settings that the arguments describe now."""
Probe = Callable[[KernelSettings], dict[str, Any]]
"""Connects to the machine of the settings, and returns what is there."""


class AddQuestions:
    """The questions about one machine. `ask` fills in the arguments that the user has not given."""

    def __init__(self, args: argparse.Namespace, settings: Settings, probe: Probe) -> None:
        self._args = args
        self._settings = settings
        self._probe = probe

    def ask(self) -> None:
        """Ask for the machine, connect to it, and ask for the Python, the GPUs and the name; then print the command
        that would have done without questions. Raises what the verb raises for such arguments."""
        self._ask_machine()
        probe = self._look()
        if probe:
            self._ask_python([probe["python"], *(one for one in probe["others"] if one["usable"])])
        self._ask_gpus(probe)
        self._ask_name()
        _say(f"\nWithout questions: {running_command()} add {as_typed(self._words())}\n")

    def _ask_machine(self) -> None:
        args = self._args
        known = hosts(args.config or "")
        names = [str(one["name"]) for one in known]
        _say("Which machine? A number, user@host, user@host:port, or an “ssh …” command.")
        while not args.destination:
            answer = choose("Machine", names, list(map(_described, known)))
            try:
                parse_destination(answer)
                args.destination = answer
            except RouteError as error:
                _say(str(error))
        if not (args.jumps or args.destination in names or " " in args.destination):
            jumps = ask_line(
                "Through which hosts, separated by commas (empty: as your ssh configuration says)"
            )
            args.jumps = [jumps] if jumps else None

    def _look(self) -> dict[str, Any]:
        """Return what is on the machine; nothing if it needs an environment first."""
        try:
            probe = self._probe(self._settings())
            if not (self._args.slurm or probe["gpus"]):  # a login node may also lack nvidia-smi
                _say("No GPU was found on this machine.")
                probe = self._probe(self._settings()) if self._is_login_node() else probe
        except AgentError as error:
            if not error.remedy.startswith(CREATE_ENV):
                raise
            _say(f"{error.hop}: {error.cause}\nAn environment with ipykernel will be made there.")
            self._args.create_env = True
            self._is_login_node()
            return {}
        return probe

    def _is_login_node(self) -> bool:
        question = "Is it the login node of a cluster with Slurm, whose jobs have GPUs?"
        self._args.slurm = self._args.slurm or agrees(question, by_default=False)
        return bool(self._args.slurm)

    def _ask_python(self, pythons: list[dict[str, str]]) -> None:
        if self._args.python or len(pythons) == 1:
            return
        rows = [f"{one['path']} ({one['version']}, ipykernel {one['ipykernel']})" for one in pythons]
        self._args.python = choose("Python", [one["path"] for one in pythons], rows, default="1")

    def _ask_gpus(self, probe: dict[str, Any]) -> None:
        if self._args.gpus is not None:
            return
        gpus = probe.get("gpus", [])
        if probe and not (gpus or probe["gpus_error"] or self._args.slurm):
            self._args.gpus = 0
            return
        free = sum(1 for gpu in gpus if gpu["free"])
        now = f" ({free} of {len(gpus)} are free)" if gpus else ""
        answer = ask_line(f"GPUs that each kernel takes{now}", str(default_of("gpus")))
        while not (answer.isascii() and answer.isdecimal()):
            answer = ask_line("A whole number, 0 for none", str(default_of("gpus")))
        self._args.gpus = int(answer)

    def _ask_name(self) -> None:
        args = self._args
        while args.name is None:
            args.name = ask_line("Name, shown as “Remote GPU (name)”", adding.default_name(self._settings()))
            try:
                kernelspecs.check_name(args.name, prefix=args.prefix, replace=args.replace)
            except SettingsError as error:
                _say(error.cause)
                replaceable = kernelspecs.is_known(args.name)[1]
                args.replace = replaceable and agrees("Replace it?", by_default=False)
                args.name = args.name if args.replace else None

    def _words(self) -> list[str]:
        args = self._args
        settings = self._settings()
        flags = {"--create-env": args.create_env, "--yes": args.yes, "--replace": args.replace}
        name = "" if args.name == adding.default_name(settings) else args.name
        values = {"--env-dir": args.env_dir, "--prefix": args.prefix, "--name": name}
        return [
            *adding.words_of(settings),
            *(flag for flag, given in flags.items() if given),
            *(f"{option}={value}" for option, value in values.items() if value),
        ]


def _described(host: dict[str, Any]) -> str:
    """Return a host of the ssh configuration as the user may know it."""
    port = "" if host["port"] in (None, 22) else f", port {host['port']}"
    jumps = f", through {' → '.join(host['jumps'])}" if host["jumps"] else ""
    return one_line(f"{host['name']}: {host['user']}{port}{jumps}")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
