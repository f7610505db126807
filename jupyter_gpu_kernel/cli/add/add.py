"""The verb `add`: connect as ssh would, find a Python and the GPUs, and write a kernelspec."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ... import adding, kernelspecs
from ...errors import BY_LOGIN, AuthError, GpuKernelError, HostKeyError, SettingsError
from ...settings import CHOICES, Settings
from ...wire import MAX_PRIORITY
from ...wire.texts import printable
from .. import create_env
from ..show import tables
from ..show.gpu_hours import span
from ..verb import Verb, print_json
from . import slurm as add_slurm

_SETTINGS = {one.name for one in fields(Settings)} - {"env_dir"}
"""Options that are settings. One that is not given is None, and the setting has its default."""


class Add(Verb):
    verb = "add"
    summary = "Connect to a machine, find a Python and its GPUs, and add a kernelspec for all front ends."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self._add_connection_arguments(parser)
        self._add_kernel_arguments(parser)
        self._add_gpu_arguments(parser)
        self._add_environment_arguments(parser)
        add_slurm.add_arguments(parser)
        create_env.add_arguments(parser)
        add = parser.add_argument
        add("--no-probe", action="store_true", help="write the kernelspec without connecting")
        add("--replace", action="store_true", help="overwrite a kernelspec of the same name")
        add(
            "--prefix",
            metavar="DIR",
            help="write one kernelspec under DIR/share/jupyter, and change no other",
        )

    def _add_connection_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "destination",
            metavar="DESTINATION",
            nargs="?",
            help="user@host[:port], a Host of your ssh configuration, a pasted “ssh …” command, or localhost",
        )
        add(
            "--hosts",
            metavar="HOST[,HOST…]",
            action="append",
            help="several machines instead of DESTINATION: each kernel starts on the best one",
        )
        add("-J", dest="jumps", metavar="HOP[,HOP…]", action="append", help="jump hosts, as for ssh")
        add("-i", dest="identity", metavar="KEY", action="append", help="a private key file; can be repeated")
        add(
            "-F",
            dest="config",
            metavar="SSH_CONFIG",
            help="an ssh configuration file to use instead of ~/.ssh/config",
        )
        add("-p", dest="port", metavar="PORT", type=int, help="the destination's SSH port")
        add(
            "--transport",
            choices=CHOICES["transport"],
            help="what speaks SSH: paramiko, or the system's ssh program; auto (the default) takes paramiko unless a "
            "host needs what only ssh can do, such as Kerberos or a ProxyCommand",
        )
        add(
            "--via",
            metavar="COMMAND",
            action="append",
            help="a command on DESTINATION that leads on: “ssh gpu2”, “docker exec -i box”; can be repeated",
        )

    def _add_kernel_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--name", metavar="NAME", help="the kernelspec's name (default: the host)")
        add(
            "--python",
            metavar="PATH",
            help="the kernel's Python on the node, or with --create-env the one from which the environment is made "
            "(default: the best one found)",
        )
        add(
            "--sigterm",
            choices=CHOICES["sigterm"],
            help=f"what SIGTERM does to a kernel in use (default: {Settings.sigterm})",
        )
        add(
            "--no-spare",
            dest="spare",
            action="store_const",
            const="off",
            help="start each kernel as a new program; by default it is forked from a spare interpreter on the node",
        )
        add(
            "--idle-timeout",
            metavar="TIME",
            type=span,
            help="when an idle kernel without a front end ends (30m, 8h; default: 2h; 0: never)",
        )

    def _add_gpu_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--gpus",
            metavar="N",
            type=int,
            help=f"how many GPUs a kernel takes (default: {Settings.gpus}; 0: none)",
        )
        add(
            "--min-memory",
            metavar="SIZE",
            help="the memory that each GPU must have, without what the driver keeps: 20G, 20GiB (default: any)",
        )
        add(
            "--gpu-type",
            metavar="TEXT",
            help="what the name of each GPU must contain: 3090, A100 (default: any)",
        )
        add(
            "--priority",
            metavar="N",
            type=int,
            help=f"which of your kernels that wait for GPUs get them first: the highest, from -{MAX_PRIORITY} to "
            f"{MAX_PRIORITY} (default: {Settings.priority})",
        )
        add(
            "--ignore-lease",
            metavar="UUID",
            action="append",
            help="take this GPU although somebody else has its lease, if it is not used; can be repeated",
        )
        add(
            "--ignore-place",
            metavar="USER",
            action="append",
            help="pass over all places of this user in the queue once free GPUs were left untaken for a minute; can be "
            "repeated",
        )

    def _add_environment_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--env",
            metavar="NAME=VALUE",
            type=_assignment,
            action="append",
            help="a variable of the kernel's environment; can be repeated",
        )
        add(
            "--env-file",
            metavar="FILE",
            help="a file of NAME=VALUE lines that only you can read; for secrets",
        )
        add("--cwd", metavar="DIR", help="the kernel's working directory (default: your home folder)")
        add(
            "--code",
            metavar="REV",
            help="run the code of this git revision: the kernel works in a checkout of its own of --cwd at that commit",
        )
        add(
            "--setup",
            metavar="LINE",
            action="append",
            help="a shell line to run before the kernel starts; can be repeated",
        )

    def run(self) -> int:
        args = self.args
        hosts = adding.split_hosts(args.hosts or ())
        if bool(hosts) == bool(args.destination):
            sys.stderr.write("Give DESTINATION, or --hosts HOST,HOST for several machines, and not both.\n")
            return 2
        if fault := create_env.usage_fault(args):
            sys.stderr.write(f"{fault}\n")
            return 2
        settings = self._settings(hosts)
        name = args.name if args.name is not None else adding.default_name(settings)
        kernelspecs.check_name(name, prefix=args.prefix, replace=args.replace)
        probe = None
        if args.no_probe and args.python and not args.python.startswith("/"):
            raise SettingsError(
                f"{args.python} is not an absolute path",
                remedy="Give the absolute path, or omit --no-probe to search for it on the node.",
            )
        made = create_env.create(args, settings, name.lower(), self._ask_node) if args.create_env else []
        if not args.no_probe:
            probe = self._ask_node("probe", settings=settings)
            adding.refuse_impossible(probe, settings)
            settings = adding.completed(settings, probe)
        spec, notes = adding.write(name, settings, prefix=args.prefix, replace=args.replace)
        shown = {
            "name": spec.name,
            "display_name": spec.display_name,
            "path": str(spec.path),
            "settings": spec.settings,
        }
        if args.json:
            print_json({**shown, "probe": probe, **({"environments": made} if made else {})})
        else:
            found = _probes_result(probe, settings) if probe else []
            print("\n".join([*found, *map(printable, notes), *_next_step(spec)]))
        return 0

    def _ask_node(self, op: str, **arguments: Any) -> Any:
        try:
            return self.ask_hub(op, lines=not self.args.json, **arguments)
        except (AuthError, HostKeyError) as error:  # `login` needs a kernelspec, which does not exist yet
            error.fill_in(f"once {BY_LOGIN}", "by running this command in a terminal")
            raise

    def _settings(self, hosts: list[str]) -> dict[str, Any]:
        """The settings that the arguments describe, checked before anything connects."""
        args = self.args
        route = adding.GivenRoute(
            hosts=hosts or [args.destination],
            several=bool(hosts),
            jumps=args.jumps or (),
            identity=args.identity or (),
            config=args.config or "",
            port=args.port,
        )
        given = {key: value for key, value in vars(args).items() if key in _SETTINGS}
        try:
            return adding.settings_of(route, {**given, "env": dict(args.env or ())})
        except SettingsError as error:  # it names the kernelspec's key, and the user wrote an option
            error.cause = re.sub(r"“([a-z_]+)”", lambda key: adding.option_of(key[1]), error.cause)
            raise


def _assignment(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _probes_result(probe: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    if "hosts" not in probe:
        return _probe_result(probe, settings) + _unknown_leases([probe], settings)
    lines = _hosts_result(probe["hosts"], lambda one: _probe_result(one, settings))
    return lines + _unknown_leases(probe["hosts"], settings)


def _hosts_result(probes: list[dict[str, Any]], result: Callable[[dict[str, Any]], list[str]]) -> list[str]:
    """Return the lines about each host; `result(probe)` has those of one that works."""
    lines: list[str] = []
    for one in probes:
        lines.append(printable(f"{one['host']}:"))
        if "error" in one:
            error = GpuKernelError.from_json(one["error"])
            lines += [f"  {line}" for line in printable(str(error)).splitlines()]
            lines.append("  It stays in the list; kernels start on the other hosts while it cannot be used.")
        else:
            lines += [f"  {line}" for text in result(one) for line in text.splitlines()]
    if not adding.common_python(adding.working_hosts(probes)):
        lines.append("The Pythons have different paths, so each start looks for one (or give --python PATH).")
    return lines


def _unknown_leases(probes: list[dict[str, Any]], settings: dict[str, Any]) -> list[str]:
    """Notes about --ignore-lease, if the GPUs of all hosts are known."""
    if not all(one.get("gpus") for one in probes):
        return []
    known = {gpu.get("uuid") for one in probes for gpu in one["gpus"]}
    unknown = [uuid for uuid in settings.get("ignore_lease", ()) if uuid not in known]
    return [f"Note: there is no GPU {uuid}, which --ignore-lease names." for uuid in unknown]


def _probe_result(probe: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    lines = [f"  {hop['hop']}: {hop['step']} {hop['seconds']:.2f} s" for hop in probe["hops"]]
    python, node = probe["python"], probe["node"]
    lines.append(f"Python: {python['path']} ({python['version']}, ipykernel {python['ipykernel']})")
    lines += [f"  not used: {other['path']} {other['why_not']}" for other in probe["others"]]
    lines += [f"  not searched: {place}" for place in probe.get("unseen", [])]
    if node.get("home_problem"):
        lines.append(
            f"Note: the node's home folder {node.get('home')} is not writable: {node['home_problem']}"
        )
    if "slurm" in probe:
        lines += add_slurm.result(probe["slurm"], settings)
    elif probe["gpus"]:
        lines.append(tables.gpus(probe["gpus"]))
        if probe.get("gpus_problem"):
            lines.append(f"Note: this kernel cannot get GPUs on this node: {probe['gpus_problem']}")
    elif probe.get("gpus_error"):
        lines.append(f"Note: the GPUs could not be listed: {probe['gpus_error']}")
    elif settings["gpus"]:
        lines.append("Note: this machine has no GPU. With --gpus 0 the kernel does not wait for one.")
    return [printable(line) for line in lines]


def _next_step(spec: kernelspecs.Kernelspec) -> list[str]:
    other = kernelspecs.shadowed_by(spec)
    note = (
        [f"Note: front ends of this environment use another kernelspec of this name: {other}"]
        if other
        else []
    )
    return [
        f"Written: {spec.path}",
        *note,
        f"Select “{spec.display_name}” in JupyterLab, or in VS Code: Select Kernel → Jupyter Kernel…",
    ]
