"""The verb `add`: connect as ssh would, find a Python and the GPUs, and write a kernelspec.

The options that are settings are declared in wire/kernel_settings.py. What the verb has in common with the form of
JupyterLab is in adding.py, and the environments of `--create-env` are in create_env.py and wheels.py."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any

from .. import adding, kernelspecs
from ..adding import option_of
from ..errors import BY_LOGIN, AuthError, GpuKernelError, HostKeyError, SettingsError
from ..wire import durations
from ..wire.kernel_settings import GROUPS, KERNEL, ROUTE, USER_SETTINGS, KernelSettings, default_of
from ..wire.texts import printable
from . import create_env
from .arguments import span
from .show import slurm, tables
from .verb import Verb, print_json


class Add(Verb):
    verb = "add"
    summary = "Connect to a machine, find a Python and its GPUs, and add a kernelspec for all front ends."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_options(parser)

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
        made: list[dict[str, Any]] = []
        if args.create_env:
            settings, made = create_env.create(args, settings, name.lower(), self._ask_node)
        if not args.no_probe:
            probe = self._ask_node("probe", settings=settings.to_json())
            adding.refuse_impossible(probe, settings)
            settings = adding.completed(settings, probe)
        spec, notes = adding.write(name, settings, prefix=args.prefix, replace=args.replace)
        if args.json:
            print_json({**spec.to_json(), "probe": probe, **({"environments": made} if made else {})})
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

    def _settings(self, hosts: list[str]) -> KernelSettings:
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
        try:
            return adding.settings_of(route, given_settings(args))
        except SettingsError as error:  # it names the kernelspec's key, and the user wrote an option
            error.cause = re.sub(r"“([a-z_]+)”", lambda key: adding.option_of(key[1]), error.cause)
            raise


def _probes_result(probe: dict[str, Any], settings: KernelSettings) -> list[str]:
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


def _unknown_leases(probes: list[dict[str, Any]], settings: KernelSettings) -> list[str]:
    """Notes about --ignore-lease, if the GPUs of all hosts are known."""
    if not all(one.get("gpus") for one in probes):
        return []
    known = {gpu.get("uuid") for one in probes for gpu in one["gpus"]}
    unknown = [uuid for uuid in settings.ignore_lease if uuid not in known]
    return [f"Note: there is no GPU {uuid}, which --ignore-lease names." for uuid in unknown]


def _probe_result(probe: dict[str, Any], settings: KernelSettings) -> list[str]:
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
        lines += slurm.probe_result(probe["slurm"], settings)
    elif probe["gpus"]:
        lines.append(tables.gpus(probe["gpus"]))
        if probe.get("gpus_problem"):
            lines.append(f"Note: this kernel cannot get GPUs on this node: {probe['gpus_problem']}")
    elif probe.get("gpus_error"):
        lines.append(f"Note: the GPUs could not be listed: {probe['gpus_error']}")
    elif settings.gpus:
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


# --- the options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare all arguments of `add`."""
    groups = {title: parser.add_argument_group(title, about) for title, about in GROUPS.items()}
    _add_route(groups[ROUTE])
    groups[KERNEL].add_argument("--name", metavar="NAME", help="the kernelspec's name (default: the host)")
    for key, info in USER_SETTINGS.items():
        if info.group:
            groups[info.group].add_argument(option_of(key), dest=key, help=info.help, **_form(key))
    create_env.add_arguments(parser)
    add = parser.add_argument
    add("--no-probe", action="store_true", help="write the kernelspec without connecting")
    add("--replace", action="store_true", help="overwrite a kernelspec of the same name")
    add("--prefix", metavar="DIR", help="write one kernelspec under DIR/share/jupyter, and change no other")


def _add_route(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "destination",
        metavar="DESTINATION",
        nargs="?",
        help="user@host[:port], a Host of your ssh configuration, a pasted “ssh …” command, or localhost",
    )
    jumps = "jump hosts, as for ssh"
    group.add_argument("-J", dest="jumps", metavar="HOP[,HOP…]", action="append", help=jumps)
    group.add_argument("-p", dest="port", metavar="PORT", type=int, help="the destination's SSH port")


def given_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings among the arguments; None: the option was not given."""
    given = {key: value for key, value in vars(args).items() if key in USER_SETTINGS and key != "env_dir"}
    return {**given, "env": dict(args.env or ())}


def _form(key: str) -> dict[str, Any]:
    """Return what argparse needs to know of the argument of the option for this setting."""
    info, default = USER_SETTINGS[key], default_of(key)
    if default is False:
        return {"action": "store_true"}
    if info.const is not None:
        return {"action": "store_const", "const": info.const}
    if info.choices:
        return {"choices": info.choices}
    by_default = {int: int, float: span, type(None): span}.get(type(default))
    action = "append" if isinstance(default, tuple | dict) else "store"
    return {"metavar": info.metavar, "type": _TYPES.get(key, by_default), "action": action}


def _assignment(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _time_limit(text: str) -> str:
    """The type of --time: as Slurm writes it."""
    if not text or durations.is_limit(text):
        return text
    seconds = durations.seconds_of(text) if text[-1:].isalpha() else None
    if not seconds:
        raise argparse.ArgumentTypeError(
            f"{text!a} is not a time limit such as 30m, 8h, 4:00:00, 90 (minutes)"
        )
    return durations.limit(int(seconds))


def _sbatch_option(line: str) -> str:
    """The type of --sbatch: also a line from a batch script."""
    return line.strip().removeprefix("#SBATCH").strip()


_TYPES: dict[str, Any] = {"env": _assignment, "time": _time_limit, "sbatch": _sbatch_option}
